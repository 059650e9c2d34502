/** The GPUs of a node as cells: free, held by whom, how busy, as far as the server tells. */
import type { Schema } from "../api/client";

type Node = Schema["NodeView"];

export interface Cell {
  index: number;
  state: "free" | "used" | "down";
  owners: readonly Schema["NodeJob"][];
  /** In percent; null: nobody looked. */
  busy: number | null;
  memory: number | null;
  celsius: number | null;
  watts: number | null;
}

/** One for each device. An engine that does not name its devices still tells how many are held:
 * then those are in use, though nobody says which. */
export function cells(node: Node): Cell[] {
  const usable = node.state === "ready" || node.state === "draining";
  const total = Math.max(node.capacity.gpus, node.gpus.length);
  const held = node.free ? node.capacity.gpus - node.free.gpus : 0;
  let unnamed = node.gpus.length ? 0 : held;
  return Array.from({ length: total }, (_, index) => {
    const gpu = node.gpus[index];
    const owners = gpu?.jobs ?? [];
    const used = owners.length > 0 || unnamed-- > 0;
    return {
      index,
      state: !usable ? "down" : used ? "used" : "free",
      owners,
      busy: gpu?.percent ?? null,
      memory: gpu?.memory_bytes ?? null,
      celsius: gpu?.celsius ?? null,
      watts: gpu?.watts ?? null,
    };
  });
}

export interface Total {
  total: number;
  free: number | null;
}

/** What ready nodes have together; null where one of them does not tell. */
export function together(nodes: readonly Node[], kind: "gpus" | "cpus_milli" | "memory_bytes"): Total {
  let total = 0;
  let free: number | null = 0;
  for (const node of nodes) {
    if (node.state !== "ready") continue;
    total += node.capacity[kind];
    free = free === null || !node.free ? null : free + node.free[kind];
  }
  return { total, free };
}

export function matches(node: Node, text: string): boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [node.name, node.pool, node.gpu_model, node.rack, node.block, node.state, ...node.labels].join(" ").toLowerCase();
  return words.every((word) => all.includes(word));
}
