// What a page shows when it changes something is kept by the browser for this very origin, and in no cookie.

localStorage.setItem(document.body.dataset.login, document.body.dataset.proof);
location.replace(document.querySelector("a").href);
