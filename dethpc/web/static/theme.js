// The theme that a person chose, before anything is painted. app.js changes it.
{
  const chosen = localStorage.getItem("dethpc-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
