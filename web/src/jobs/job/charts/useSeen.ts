/** Whether an element has come near what is seen: what is far below is made when one gets there. */
import { useEffect, useRef, useState, type RefObject } from "react";

export function useSeen<T extends Element>(): [RefObject<T | null>, boolean] {
  const box = useRef<T>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (seen || !box.current) return undefined;
    const watch = new IntersectionObserver((found) => found.some((each) => each.isIntersecting) && setSeen(true), { rootMargin: "400px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [seen]);
  return [box, seen];
}
