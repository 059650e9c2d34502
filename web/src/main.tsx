import "@mantine/core/styles.css";
import "./look/look.css";

import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { createRoot } from "react-dom/client";

import { queries } from "./api/queries";
import { Languages } from "./i18n";
import { theme } from "./look/theme";
import { router } from "./router";
import { Broken } from "./shell/Broken";
import { Feed } from "./shell/feed";
import { WhoIsThere } from "./shell/who";

const scheme = localStorageColorSchemeManager({ key: "windlass-theme" });
const nonce = document.querySelector<HTMLMetaElement>('meta[name="style-nonce"]')?.content ?? "";

// The page and what it asks for are on their way while the server says who is there.
void router.load();

createRoot(document.getElementById("root") as HTMLElement).render(
  <MantineProvider theme={theme} colorSchemeManager={scheme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
    <Languages>
      <QueryClientProvider client={queries}>
        <WhoIsThere refused={(error) => <Broken error={error} />}>
          <Feed>
            <RouterProvider router={router} />
          </Feed>
        </WhoIsThere>
      </QueryClientProvider>
    </Languages>
  </MantineProvider>,
);
