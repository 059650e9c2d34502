/** Which way a metric is better: what the job says (`metrics.goal: max val_acc`), or what its name
 * says to everybody. The same words as in core/goals.py. */
export type Direction = "min" | "max";

const LESS = new Set(
  ("loss losses err error errors cost perplexity ppl mse rmse mae mape logloss nll wer cer fid " +
    "latency time seconds ms divergence kl regret bpb bpc").split(" "),
);
const MORE = new Set(
  ("acc accuracy auc auroc auprc f1 precision recall map ap score reward return bleu rouge iou " +
    "dice r2 top1 top5 throughput fps psnr ssim ndcg mrr").split(" "),
);

/** Null where neither the goal nor the name tells. */
export function directionOf(key: string, goal?: string | null): Direction | null {
  const [, way, named] = /^(min|max) (\S.*)$/.exec(goal ?? "") ?? [];
  if (named === key) return way as Direction;
  const words = key.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().match(/[a-z]+[0-9]?/g) ?? [];
  for (const word of words.reverse()) {
    if (LESS.has(word)) return "min";
    if (MORE.has(word)) return "max";
  }
  return null;
}
