"""A bare FastAPI app that echoes requests: the cost of HTTP itself. `webecho.py tcp://HOST:PORT`.

uvicorn with the settings of our broker: uvloop, httptools, no access log, lifespan, WebSockets or proxy
headers.
"""

import sys

import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI(openapi_url=None)


@app.post("/v1/services/echo/jobs")
async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/octet-stream")


if __name__ == "__main__":
    host, _, port = sys.argv[1].removeprefix("tcp://").rpartition(":")
    uvicorn.run(
        app,
        host=host,
        port=int(port),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
    )
