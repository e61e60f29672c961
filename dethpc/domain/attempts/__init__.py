"""What an attempt is asked, and what it reports of its end and of what it used."""
