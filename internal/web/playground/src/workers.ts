// Monaco's language services run in workers, which are files of this server:
// no blob: or data: URL is made, so "worker-src 'self'" is enough.
import LanguageWorker from "./worker?worker";

self.MonacoEnvironment = {
  getWorker: (_id: string, label: string) => new LanguageWorker({ name: label }),
};
