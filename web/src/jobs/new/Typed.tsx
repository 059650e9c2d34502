/** Inputs whose text is what is typed as long as one types, and what the job file has otherwise. */
import { Textarea, TextInput, type TextareaProps, type TextInputProps } from "@mantine/core";
import { useState, type ReactNode } from "react";

interface Two {
  value: string;
  commit: (text: string) => void;
}

function useTyped({ value, commit }: Two): {
  value: string;
  onChange: (event: { currentTarget: { value: string } }) => void;
  onBlur: () => void;
} {
  const [typed, setTyped] = useState<string | null>(null);
  return {
    value: typed ?? value,
    onChange: (event) => {
      setTyped(event.currentTarget.value);
      commit(event.currentTarget.value);
    },
    onBlur: () => setTyped(null),
  };
}

export function TypedLine({ value, commit, ...rest }: Two & Omit<TextInputProps, keyof Two>): ReactNode {
  return <TextInput size="sm" autoComplete="off" spellCheck={false} {...rest} {...useTyped({ value, commit })} />;
}

export function TypedText({ value, commit, ...rest }: Two & Omit<TextareaProps, keyof Two>): ReactNode {
  return (
    <Textarea size="sm" autosize minRows={2} spellCheck={false} autoComplete="off" styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }} {...rest} {...useTyped({ value, commit })} />
  );
}
