/** A file looked at in the page, within limits. Markup in it is text; images are drawn by the
 * browser as images, in which no script runs. */
import { Button, Group, Skeleton, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";

import { useLanguage, useWords } from "../../i18n";
import { bytes, count } from "../../i18n/format";
import { Icon } from "../../look/Icon";
import { Wide } from "../../look/Part";
import { fetched, save } from "../../look/save";
import { Told } from "../../look/Told";
import css from "./job.module.css";
import { MOST, MOST_ROWS, pretty, rowsOf, typeOf, viewerOf } from "./viewing";
import { words } from "./words";

export function Viewer({ address, path, size, digest }: { address: string; path: string; size: number; digest: string }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const viewer = viewerOf(path);
  const fits = viewer !== "none" && size <= MOST[viewer];
  const { data, error } = useQuery({
    queryKey: ["file", address, digest],
    enabled: fits,
    staleTime: Infinity,
    gcTime: 60_000,
    queryFn: async () => {
      const answer = await fetched(address);
      return viewer === "image" ? new Blob([await answer.arrayBuffer()], { type: typeOf(path) }) : await answer.text();
    },
  });
  return (
    <section aria-label={path}>
      <Group justify="space-between" wrap="nowrap" mb={4}>
        <Text className="mono clip" title={path}>{path}</Text>
        <Button size="compact-xs" variant="default" leftSection={<Icon name="download" size={13} />} onClick={() => void save(address, {}, path.split("/").at(-1) ?? "file")}>
          {w.download}
        </Button>
      </Group>
      {Boolean(error) && <Told error={error} />}
      {viewer === "none" && <Text size="sm" c="dimmed">{w.noViewer}</Text>}
      {viewer !== "none" && !fits && <Text size="sm" c="dimmed">{w.tooBig(bytes(size, language), bytes(MOST[viewer], language))}</Text>}
      {fits && !error && data === undefined && <Skeleton h={120} />}
      {data instanceof Blob && <Picture blob={data} name={path} />}
      {typeof data === "string" && viewer === "table" && <Rows text={data} path={path} />}
      {typeof data === "string" && viewer !== "table" && (
        <pre className={css.pre} tabIndex={0} aria-label={path} style={{ maxHeight: 520 }}>{(viewer === "json" ? pretty(data) : data).slice(0, MOST.text)}</pre>
      )}
    </section>
  );
}

function Rows({ text, path: name }: { text: string; path: string }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { rows, all } = rowsOf(text, name.toLowerCase().endsWith(".tsv") ? "\t" : ",");
  const [head = [], ...body] = rows;
  return (
    <>
      <Wide label={name}>
        <Table fz="xs" striped withTableBorder withColumnBorders stickyHeader>
          <Table.Thead>
            <Table.Tr>{head.slice(0, 100).map((each, at) => <Table.Th key={at} scope="col">{each}</Table.Th>)}</Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {body.slice(0, MOST_ROWS).map((row, at) => (
              <Table.Tr key={at}>{row.slice(0, 100).map((each, place) => <Table.Td key={place}>{each}</Table.Td>)}</Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      {all - 1 > MOST_ROWS && <Text size="xs" c="dimmed">{w.firstRows(count(MOST_ROWS, language), count(all - 1, language))}</Text>}
    </>
  );
}

/** An image out of bytes; the browser draws it without running anything in it. */
export function Picture({ blob, name, wide }: { blob: Blob; name: string; wide?: boolean }): ReactNode {
  const [address, setAddress] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return address ? <img className={wide ? css.flame : css.image} src={address} alt={name} /> : null;
}
