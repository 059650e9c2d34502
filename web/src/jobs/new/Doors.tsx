/** Where the code comes from: written here, of this computer, a repository, none, or an earlier job's. */
import { ActionIcon, Alert, Button, FileButton, Group, SegmentedControl, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { useState, type DragEvent, type ReactNode } from "react";

import { useLanguage, useWords } from "../../i18n";
import { bytes, count } from "../../i18n/format";
import { Command } from "../../look/Command";
import { Icon } from "../../look/Icon";
import { JobPicker } from "../../look/JobPicker";
import { canHash, isCode, merged, pathOf, type CodeFile } from "./files";
import css from "./new.module.css";
import { TypedLine } from "./Typed";
import { words } from "./words";

export const DOORS = ["script", "files", "git", "command", "clone"] as const;
export type Door = (typeof DOORS)[number];
export interface Script {
  name: string;
  text: string;
}
/** Code in a repository, as the job file has it. */
export interface Repository {
  git: string;
  ref: string;
  commit: string;
}

const SHOWN_FILES = 8;

export function Doors({ door, change, script, setScript, files, setFiles, from, setFrom, bundle, dropBundle, repository, setRepository, errors, line }: {
  door: Door;
  change: (door: Door) => void;
  script: Script;
  setScript: (script: Script) => void;
  files: readonly CodeFile[];
  setFiles: (files: CodeFile[]) => void;
  from: { id: string; name: string } | null;
  setFrom: (job: { id: string; name: string } | null) => void;
  /** The code that the job file names already. */
  bundle: string | null;
  dropBundle: () => void;
  repository: Repository;
  setRepository: (field: keyof Repository, value: string) => void;
  errors: Readonly<Record<string, string>>;
  /** The same by the CLI, for who cannot send from here. */
  line: string;
}): ReactNode {
  const w = useWords(words);
  const sends = door === "script" || door === "files";
  return (
    <Stack gap="sm" mb="md">
      <div className="scroll-x" tabIndex={-1}>
        <SegmentedControl
          aria-label={w.doors}
          data={DOORS.map((value) => ({ value, label: w.door[value] }))}
          value={door}
          onChange={(value) => change(value as Door)}
          className={css.doors}
        />
      </div>
      <Text size="sm" c="dimmed">
        {w.doorHint[door]}
      </Text>
      {sends && !canHash() && (
        <Alert color="orange" variant="light">
          <Text size="sm" mb="xs">
            {w.insecure}
          </Text>
          <Command line={line} />
        </Alert>
      )}
      {door === "script" && (
        <>
          <TextInput label={w.scriptName} value={script.name} onChange={(event) => setScript({ ...script, name: event.currentTarget.value })} maw={240} autoComplete="off" spellCheck={false} />
          <Textarea
            label={w.script}
            value={script.text}
            onChange={(event) => setScript({ ...script, text: event.currentTarget.value })}
            autosize
            minRows={6}
            maxRows={22}
            spellCheck={false}
            classNames={{ input: css.code }}
          />
        </>
      )}
      {door === "files" && <FileList files={files} setFiles={setFiles} />}
      {(door === "git" || (repository.git && !sends)) && (
        <>
          <TypedLine
            label={w.repository}
            description={w.repositoryHelp}
            placeholder={w.repositoryHint}
            value={repository.git}
            commit={(text) => setRepository("git", text.trim())}
            error={errors["code.git"] ?? errors.code}
            data-field="code.git"
          />
          <TypedLine label={w.ref} placeholder={w.refHint} value={repository.ref} commit={(text) => setRepository("ref", text.trim())} error={errors["code.ref"]} maw={360} data-field="code.ref" />
          {repository.commit && (
            <Group gap="xs">
              <Text size="sm">{w.pinned(repository.commit.slice(0, 12))}</Text>
              <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setRepository("commit", "")}>
                {w.unpin}
              </Button>
            </Group>
          )}
        </>
      )}
      {door === "clone" && <JobPicker label={w.cloneOf} chosen={from} onChoose={setFrom} key={from?.id ?? ""} />}
      {bundle && !sends && (
        <Group gap="xs">
          <Text size="sm">{w.bundle(bundle.slice(0, 12))}</Text>
          <Button size="compact-xs" variant="subtle" color="gray" onClick={dropBundle}>
            {w.noBundle}
          </Button>
        </Group>
      )}
    </Stack>
  );
}

function FileList({ files, setFiles }: { files: readonly CodeFile[]; setFiles: (files: CodeFile[]) => void }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [over, setOver] = useState(false);
  const take = (chosen: readonly File[]): void => {
    const found = chosen.map((file) => ({ path: pathOf(file.webkitRelativePath, file.name), blob: file as Blob }));
    setFiles(merged(files, found.filter((each) => isCode(each.path))));
  };
  const dropped = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    take([...event.dataTransfer.files]);
  };
  const size = files.reduce((sum, each) => sum + each.blob.size, 0);
  return (
    <div
      className={css.drop}
      data-over={over}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={dropped}
    >
      <Group gap="xs" mb={files.length ? "xs" : 0}>
        <FileButton onChange={take} multiple inputProps={{ "aria-label": w.someFiles }}>
          {(props) => (
            <Button {...props} variant="default" size="xs" leftSection={<Icon name="plus" size={14} />}>
              {w.someFiles}
            </Button>
          )}
        </FileButton>
        <FileButton onChange={take} multiple inputProps={{ "aria-label": w.folder, webkitdirectory: "" } as never}>
          {(props) => (
            <Button {...props} variant="default" size="xs">
              {w.folder}
            </Button>
          )}
        </FileButton>
        <Text size="sm" c="dimmed">
          {files.length ? w.fileCount(count(files.length, language), bytes(size, language)) : w.dropHere}
        </Text>
        {files.length > 0 && (
          <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setFiles([])}>
            {w.clear}
          </Button>
        )}
      </Group>
      {files.slice(0, SHOWN_FILES).map((file) => (
        <Group key={file.path} gap={6} wrap="nowrap">
          <Text size="sm" className="mono clip" style={{ flex: 1 }}>
            {file.path}
          </Text>
          <Text size="xs" c="dimmed">
            {bytes(file.blob.size, language)}
          </Text>
          <ActionIcon size="sm" variant="subtle" color="gray" aria-label={w.takeOut(file.path)} onClick={() => setFiles(files.filter((each) => each.path !== file.path))}>
            <Icon name="close" size={12} />
          </ActionIcon>
        </Group>
      ))}
      {files.length > SHOWN_FILES && (
        <Text size="xs" c="dimmed">
          {w.moreFiles(count(files.length - SHOWN_FILES, language))}
        </Text>
      )}
    </div>
  );
}
