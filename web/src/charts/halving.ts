/** Trials of successive halving, by rung. Pure. */
export interface RungTrial {
  id: string;
  label: string;
  /** The highest rung it reached, from 0. */
  rung: number;
  /** Its last value of the objective. */
  value: number | null;
  /** Whether it goes on, ended by itself, or was stopped there. */
  state: "running" | "done" | "stopped";
}

export interface Rung {
  rung: number;
  /** All that came here. */
  trials: readonly RungTrial[];
  wentOn: number;
  stopped: number;
  still: number;
}

export function rungsOf(trials: readonly RungTrial[]): Rung[] {
  const many = trials.reduce((most, each) => Math.max(most, each.rung + 1), 0);
  return Array.from({ length: many }, (_, rung) => {
    const here = trials.filter((each) => each.rung >= rung);
    const ended = here.filter((each) => each.rung === rung);
    const stopped = ended.filter((each) => each.state === "stopped").length;
    return { rung, trials: here, wentOn: here.length - ended.length, stopped, still: ended.length - stopped };
  });
}
