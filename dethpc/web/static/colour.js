// Colours of the style sheet as a canvas takes them: the theme in use has decided between light and dark.

const known = new Map();  // to ask costs a layout of the page, and who moves a pointer asks at each step
document.addEventListener("dethpc:theme", () => known.clear());

function computed(colour) {
  if (!known.has(colour)) {
    const probe = document.createElement("span");
    probe.style.color = colour;
    document.body.append(probe);
    known.set(colour, getComputedStyle(probe).color);
    probe.remove();
  }
  return known.get(colour);
}

export const resolved = (name) => computed(`var(${name})`);

// ``many`` colours from that of the worst to that of the best. Hue and lightness both go one way, for who sees no red or green.
export const ramp = (many) => Array.from({ length: many }, (_, i) =>
  computed(`color-mix(in oklch, var(--best) ${100 * i / (many - 1)}%, var(--worst))`));
