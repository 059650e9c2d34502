/** What a waiting job lacks. The scheduler counts thousandths of GPUs and CPUs, and bytes. */
export interface Lack {
  kind: "gpus" | "cpus" | "memory" | "slots" | "other";
  name: string;
  amount: number;
}

export function lacks(missing: Readonly<Record<string, number>> | undefined): Lack[] {
  return Object.entries(missing ?? {}).map(([name, amount]) => {
    const [kind, model] = name.split(":", 2);
    if (kind === "gpus" || kind === "cpus") return { kind, name: model ?? "", amount: amount / 1000 };
    if (kind === "memory" || kind === "slots") return { kind, name: "", amount };
    return { kind: "other", name, amount };
  });
}
