/** The page served live: when the server says that something changed, it loads itself again; its state is in the address. */

/** `live.events` is the address of a stream of server-sent events; every message is a change. */
export function listen(live) {
  if (!live?.events) return;
  const stream = new EventSource(live.events);
  stream.addEventListener("message", () => {
    stream.close();
    location.reload();
  });
}
