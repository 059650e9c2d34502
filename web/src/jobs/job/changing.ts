/** What a rerun changes, as the server takes it and as the command line says it. */
import type { Schema } from "../../api/client";
import { line } from "../../look/line";
import { valueOf } from "./argv";
import type { Detail, Spec } from "./asking";

export interface Changes {
  /** As typed, by name; only those that differ count. */
  params: Readonly<Record<string, string>>;
  gpus: number | null;
  workers: number | null;
  memory: string;
  name: string;
  /** "", "latest", "best" or a step. */
  from: string;
}

/** The role that the form's numbers are about. */
export function mainRole(spec: Pick<Spec, "roles">): string {
  return "worker" in spec.roles ? "worker" : (Object.keys(spec.roles)[0] ?? "worker");
}

export function asTyped(spec: Pick<Spec, "roles">, params: Readonly<Record<string, string>>): Changes {
  const role = spec.roles[mainRole(spec)];
  return {
    params, gpus: role?.gpus ?? 0, workers: role?.count ?? 1,
    memory: role?.memory ? String(role.memory) : "", name: "", from: "",
  }; // prettier-ignore
}

function changedParams(before: Changes, after: Changes): [string, string][] {
  return Object.entries(after.params).filter(([name, value]) => name && before.params[name] !== value);
}

export function bodyOf(job: Pick<Detail, "id" | "spec">, before: Changes, after: Changes): Schema["RerunBody"] {
  const changes: Record<string, unknown> = {};
  if (after.name) changes.name = after.name;
  const given: Record<string, unknown> = {};
  if (after.gpus !== before.gpus) given.gpus = after.gpus ?? 0;
  if (after.workers !== before.workers) given.count = after.workers ?? 1;
  if (after.memory !== before.memory) given.memory = after.memory || 0;
  if (Object.keys(given).length) changes.roles = { [mainRole(job.spec)]: given };
  if (after.from) {
    const step = /^\d+$/.test(after.from) ? Number(after.from) : after.from;
    changes.start_from = { job: job.id, step, model: null, resume: true };
  }
  return { params: Object.fromEntries(changedParams(before, after).map(([name, value]) => [name, valueOf(value)])), changes };
}

export function cliOf(job: Pick<Detail, "name">, before: Changes, after: Changes): string {
  return line(
    "rerun", job.name,
    after.name && ["--name", after.name],
    after.workers !== before.workers && ["--workers", String(after.workers ?? 1)],
    after.gpus !== before.gpus && ["--gpus", String(after.gpus ?? 0)],
    after.memory !== before.memory && ["--memory", after.memory || "0"],
    after.from && ["--from", /^\d+$/.test(after.from) ? `step=${after.from}` : after.from],
    changedParams(before, after).map(([name, value]) => `${name}=${value}`),
  ); // prettier-ignore
}
