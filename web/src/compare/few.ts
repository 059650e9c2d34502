/** A call that runs so often at once and no more; the others wait in order. */
export function few<A, T>(most: number, call: (what: A) => Promise<T>): (what: A) => Promise<T> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (what) => {
    if (running >= most) await new Promise<void>((go) => waiting.push(go));
    else running += 1;
    try {
      return await call(what);
    } finally {
      const next = waiting.shift();
      if (next) next(); // its place goes over
      else running -= 1;
    }
  };
}
