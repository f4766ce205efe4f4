// An image as a tensor: resized to the model's height and width, in its layout and datatype.

// no INT8: pixels are 0 to 255
const ARRAYS = { FP32: Float32Array, FP64: Float64Array, UINT8: Uint8Array, UINT16: Uint16Array, INT16: Int16Array, INT32: Int32Array, UINT32: Uint32Array };

/** The place of height, width and channels in `shape`; null if it is no image. */
export function layout(shape) {
  const last = shape.length - 1;
  if (last >= 2 && [1, 3].includes(shape[last])) return { height: last - 2, width: last - 1, channels: last };
  if (last >= 2 && [1, 3].includes(shape[last - 2])) return { height: last - 1, width: last, channels: last - 2 };
  if (last >= 1) return { height: last - 1, width: last, channels: -1 };
  return null;
}

/** `{data, shape}` of the image in `file` for an input; values are 0 to `white`, of integers 0 to 255. */
export async function imageTensor(file, { name, datatype, shape }, white) {
  const places = layout(shape), Values = ARRAYS[datatype];
  if (!places || !Values) throw new Error(`An image does not fit ${name}, ${datatype} [${shape.join(", ")}].`);
  const bitmap = await createImageBitmap(file);
  const width = shape[places.width] > 0 ? shape[places.width] : bitmap.width;
  const height = shape[places.height] > 0 ? shape[places.height] : bitmap.height;
  const channels = places.channels < 0 ? 1 : shape[places.channels];
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height).data;
  const valueOf = datatype.startsWith("FP") ? (part) => (part * white) / 255 : Math.round;
  const planar = places.channels >= 0 && places.channels < places.height;
  const values = new Values(width * height * channels);
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    const [red, green, blue] = pixels.subarray(4 * pixel, 4 * pixel + 3);
    // Rec. 601, as most libraries convert to grey
    const parts = channels === 1 ? [0.299 * red + 0.587 * green + 0.114 * blue] : [red, green, blue];
    parts.forEach((part, channel) => {
      values[planar ? channel * width * height + pixel : pixel * channels + channel] = valueOf(part);
    });
  }
  const full = shape.map((size, place) => (place === places.width ? width : place === places.height ? height : place === places.channels ? channels : Math.max(1, size)));
  return { data: new Uint8Array(values.buffer), shape: full };
}
