/** Series as the server sends them, `format=binary`: a line of JSON, then doubles. Pure. */
export interface Series {
  job: string;
  key: string;
  rank: number;
  source: string;
  /** Whether there are more points than these. */
  thinned: boolean;
  /** NaN where a point has none. */
  step: Float64Array;
  /** UTC milliseconds. */
  at: Float64Array;
  value: Float64Array;
}

interface Head {
  series: { key: string; rank: number; source: string; thinned: boolean; count: number }[];
}

export function decoded(job: string, bytes: ArrayBuffer): Series[] {
  const all = new Uint8Array(bytes);
  const end = all.indexOf(10);
  if (end < 0) throw new Error("a series without a head");
  const head = JSON.parse(new TextDecoder().decode(all.subarray(0, end))) as Head;
  let at = end + 1;
  const doubles = (many: number): Float64Array => {
    if (at + many * 8 > bytes.byteLength) throw new Error("a series cut short");
    const found = littleEndian ? new Float64Array(bytes, at, many) : swapped(bytes, at, many);
    at += many * 8;
    return found;
  };
  return head.series.map(({ count, ...rest }) => ({
    job,
    ...rest,
    step: doubles(count),
    at: doubles(count),
    value: doubles(count),
  }));
}

const littleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

function swapped(bytes: ArrayBuffer, at: number, many: number): Float64Array {
  const view = new DataView(bytes, at, many * 8);
  return Float64Array.from({ length: many }, (_, n) => view.getFloat64(n * 8, true));
}
