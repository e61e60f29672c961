// Colours of the style sheet as a canvas takes them: the theme in use has decided between light and dark.

const known = new Map();  // to ask costs a layout of the page, and who moves a pointer asks at each step
const forget = () => known.clear();
document.addEventListener("dethpc:theme", forget);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forget);

export const resolved = (name) => {
  if (!known.has(name)) {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    known.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return known.get(name);
};
