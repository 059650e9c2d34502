/** A file from the server into the browser's downloads. By fetch, so that the call is about the
 * project that the page shows; a plain link cannot say which. */
import { BASE, headers, logIn, refusal } from "../api/client";

export type Params = Readonly<Record<string, string | undefined>>;

export async function fetched(path: string, params: Params = {}): Promise<Response> {
  const kept = Object.entries(params).filter((each): each is [string, string] => Boolean(each[1]));
  const query = new URLSearchParams(kept).toString();
  const answer = await fetch(`${BASE}api/v1/${path}${query ? `?${query}` : ""}`, { headers: headers() });
  if (answer.status === 401) logIn();
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function save(path: string, params: Params, name: string): Promise<void> {
  const answer = await fetched(path, params);
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
