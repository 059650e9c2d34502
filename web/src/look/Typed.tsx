/** A text that lives in the address: sent a moment after the last letter, and back with Back. */
import { TextInput, type TextInputProps } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useEffect, useRef, useState, type ReactNode } from "react";

const WAIT_MS = 300;

export function Typed({ text, onTyped, ...rest }: {
  text: string;
  onTyped: (text: string) => void;
} & Omit<TextInputProps, "value" | "onChange">): ReactNode {
  const [shown, setShown] = useState(text);
  const sent = useRef(text);
  const send = useDebouncedCallback((next: string) => {
    sent.current = next.trim();
    onTyped(next.trim());
  }, WAIT_MS);
  useEffect(() => {
    if (text === sent.current) return;
    sent.current = text;
    setShown(text);
  }, [text]);
  return (
    <TextInput
      {...rest}
      value={shown}
      onChange={(event) => {
        setShown(event.currentTarget.value);
        send(event.currentTarget.value);
      }}
    />
  );
}
