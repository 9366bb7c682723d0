#!/usr/bin/env python3
import http.server, json, sys, time

# A stand-in for llama-server. What a test wants otherwise it says by another line here:
PROMPT_S, TOKEN_S, EVENTS_OF_TOKEN, TIMINGS = 0.5, 0.05, 1, {}

if sys.argv[1].startswith("--"):
    sys.exit()
model = sys.argv[sys.argv.index("-m") + 1]
GET = {
    "/health": {"status": "ok"},
    "/props": {"model_path": model, "total_slots": 2, "default_generation_settings": {"n_ctx": 256}},
    "/v1/models": {"data": [{"id": model, "meta": {"n_vocab": 384}}]},
}
class Handler(http.server.BaseHTTPRequestHandler):
    def start(self):
        self.send_response(200)
        self.end_headers()
    def do_GET(self):
        self.start()
        self.wfile.write(json.dumps(GET[self.path]).encode())
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.start()
        if self.path == "/tokenize":
            return self.wfile.write(b'{"tokens": [1]}')
        event = lambda **event: self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        time.sleep(PROMPT_S)
        for _ in range(asked["n_predict"]):
            time.sleep(TOKEN_S)
            for _ in range(EVENTS_OF_TOKEN):
                event(content="x", stop=False)
        event(content="", stop=True, tokens_evaluated=len(asked["prompt"]), tokens_predicted=asked["n_predict"], **TIMINGS)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler).serve_forever()
