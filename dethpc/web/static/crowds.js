// What is too much for a canvas's own pen: crowds of lines and dots, put into a picture pixel by pixel.

// A line one pixel wide: ``put(at, weight)`` for each pixel, weights 0 to 255 across it; the end belongs to the next line.
function line(x0, y0, x1, y1, width, height, put) {
  const flat = Math.abs(x1 - x0) >= Math.abs(y1 - y0);
  let from = flat ? x0 : y0, to = flat ? x1 : y1, across = flat ? y0 : x0, last = flat ? y1 : x1;
  if (to < from) { [from, to] = [to, from]; [across, last] = [last, across]; }
  const slope = to > from ? (last - across) / (to - from) : 0;
  const most = flat ? height : width, step = flat ? 1 : width, aside = flat ? width : 1;
  const end = Math.min(flat ? width : height, Math.ceil(to));
  let n = Math.max(0, Math.ceil(from));
  across += (n - from) * slope;
  for (; n < end; n++, across += slope) {
    const low = Math.floor(across), weight = ((across - low) * 255) | 0, at = n * step + low * aside;
    if (low >= 0 && low < most) put(at, 255 - weight);
    if (weight && low >= -1 && low + 1 < most) put(at + aside, weight);
  }
}

function picture(width, height) {
  const made = document.createElement("canvas");
  made.width = width;
  made.height = height;
  return made;
}

// The parts of colours as a canvas understands them: [red, green, blue] each.
function parts(colours) {
  const pen = picture(colours.length, 1).getContext("2d", { willReadFrequently: true });
  colours.forEach((colour, i) => { pen.fillStyle = colour; pen.fillRect(i, 0, 1, 1); });
  const data = pen.getImageData(0, 0, colours.length, 1).data;
  return colours.map((_, i) => [...data.subarray(4 * i, 4 * i + 3)]);
}

// Curves that lie over each other, drawn once into a picture that also knows which curve is seen at each pixel.
export class Curves {
  // ``curves``: {x, y} each, y NaN where it has a gap; ``colours``: of each.
  constructor(curves, colours) {
    const own = [...new Set(colours)], found = parts(own);
    this.curves = curves;
    this.colours = colours.map((colour) => found[own.indexOf(colour)]);
  }

  // Into a plot of uPlot: anew only where it shows another part of them than before.
  draw(u) {
    const { left, top, width, height } = u.bbox, { x, y } = u.scales;
    const shown = [width, height, x.min, x.max, x.distr, y.min, y.max, y.distr].join();
    if (shown !== this.shown) this.lay(u, Math.round(width), Math.round(height));
    this.shown = shown;
    u.ctx.drawImage(this.layer, left, top);
  }

  lay(u, width, height) {
    this.layer = picture(width, height);
    this.width = width;
    this.height = height;
    this.seen = new Uint16Array(width * height);  // 0: none, otherwise the curve's number and one
    const pen = this.layer.getContext("2d"), image = pen.createImageData(width, height), data = new Uint8Array(image.data.buffer);
    const toX = across(u, "x", width), toY = across(u, "y", -height);
    let red = 0, green = 0, blue = 0, mark = 0;
    const put = (at, weight) => {
      const i = 4 * at;
      if (weight > 127 || !this.seen[at]) this.seen[at] = mark;
      if (data[i + 3] === 0) { data[i] = red; data[i + 1] = green; data[i + 2] = blue; data[i + 3] = weight; return; }
      data[i] += ((red - data[i]) * weight) >> 8;
      data[i + 1] += ((green - data[i + 1]) * weight) >> 8;
      data[i + 2] += ((blue - data[i + 2]) * weight) >> 8;
      data[i + 3] += ((255 - data[i + 3]) * weight) >> 8;
    };
    this.curves.forEach(({ x, y }, n) => {
      [red, green, blue] = this.colours[n];
      mark = n + 1;
      for (let i = 1, x0 = toX(x[0]), y0 = toY(y[0]); i < x.length; i++) {
        const x1 = toX(x[i]), y1 = toY(y[i]);
        if (y0 === y0 && y1 === y1 && x1 >= 0 && x0 <= width) line(x0, y0, x1, y1, width, height, put);
        x0 = x1;
        y0 = y1;
      }
    });
    pen.putImageData(image, 0, 0);
  }

  // The number of the curve that is seen nearest above or below a place in the plot, up to ``most`` of CSS's pixels away, or -1.
  nearest(left, top, most) {
    const scale = devicePixelRatio || 1, x = Math.round(left * scale), y = Math.round(top * scale);
    if (!this.seen || x < 0 || x >= this.width) return -1;
    for (let away = 0; away <= most * scale; away++)
      for (const row of [y - away, y + away])
        if (row >= 0 && row < this.height && this.seen[row * this.width + x]) return this.seen[row * this.width + x] - 1;
    return -1;
  }
}

// From a value to a place along an axis of uPlot's; a negative ``length`` counts from its end. NaN where a logarithm has none.
function across(u, key, length) {
  const { min, max, distr } = u.scales[key], f = distr === 3 ? Math.log : (value) => value;
  const low = f(min), factor = length / (f(max) - low), base = length < 0 ? -length : 0;
  return (value) => value === null ? NaN : base + (f(value) - low) * factor;
}

// How much lies on each pixel, and of which colour on average. What was added can be taken away again, exactly.
export class Field {
  // ``colours``: what is added has one of them, by number; ``scale``: the device's pixels in one of CSS's.
  constructor(width, height, scale, colours) {
    this.width = Math.round(width * scale);
    this.height = Math.round(height * scale);
    this.scale = scale;
    this.colours = parts(colours).map(([red, green, blue]) => red | (green << 8) | (blue << 16));
    this.weight = new Int32Array(this.width * this.height);
    this.sum = new Int32Array(this.width * this.height);
    this.layer = picture(this.width, this.height);
    this.pen = this.layer.getContext("2d");
    this.image = this.pen.createImageData(this.width, this.height);
  }

  // Lines from each point to the next: ``xs`` and ``ys`` in CSS's pixels, ys NaN where a line has no point. ``sign``: 1 or -1.
  lines(xs, ys, begin, colour, sign) {
    const { weight, sum, scale, width, height } = this;
    const put = (at, share) => { weight[at] += sign * share; sum[at] += sign * share * colour; };
    let x0 = NaN, y0 = NaN;
    for (let i = 0; i < xs.length; i++) {
      const y1 = ys[begin + i] * scale, x1 = xs[i] * scale;
      if (y1 !== y1) continue;
      if (y0 === y0) line(x0, y0, x1, y1, width, height, put);
      x0 = x1;
      y0 = y1;
    }
  }

  dot(x, y, radius, colour) {
    const { weight, sum, scale, width, height } = this, reach = radius * scale;
    const left = Math.max(0, Math.ceil(x * scale - reach)), right = Math.min(width - 1, x * scale + reach);
    for (let row = Math.max(0, Math.ceil(y * scale - reach)); row <= Math.min(height - 1, y * scale + reach); row++)
      for (let column = left; column <= right; column++) {
        if ((column - x * scale) ** 2 + (row - y * scale) ** 2 > reach * reach) continue;
        weight[row * width + column] += 255;
        sum[row * width + column] += 255 * colour;
      }
  }

  clear() {
    this.weight.fill(0);
    this.sum.fill(0);
  }

  copy(other) {
    this.weight.set(other.weight);
    this.sum.set(other.sum);
  }

  // A picture of it. ``alpha``: how much of what is behind it one line hides.
  painted(alpha) {
    const pixels = new Uint32Array(this.image.data.buffer), { weight, sum, colours } = this;
    const covers = Uint32Array.from({ length: 1024 }, (_, sixteenths) => (255 * (1 - Math.exp(-alpha * sixteenths / 16))) << 24);
    for (let at = 0; at < pixels.length; at++) {
      const here = weight[at];
      pixels[at] = here === 0 ? 0 : colours[Math.round(sum[at] / here)] | covers[Math.min(1023, (here + 15) >> 4)];
    }
    this.pen.putImageData(this.image, 0, 0);
    return this.layer;
  }
}
