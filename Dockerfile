# docker build -t copilot-runtime .
# docker build -t copilot-runtime --build-arg SET=team .                   several machines: see below
# docker build -t copilot-runtime --build-arg EXTRAS=postgres,mcp .        with packages for more
# docker run -p 8000:8000 copilot-runtime                                  the demo
# docker run -p 8000:8000 -e OPENAI_API_KEY copilot-runtime                a model
# docker run -p 8000:8000 -v ./my:/app -v threads:/app/.copilot copilot-runtime serve my_module:runtime
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
# minimal   most models need no package
# team      several machines: PostgreSQL, Redis, S3, sign-in, knowledge
# services  knowledge, traces and the like over gRPC: serve --services vector,graph
# all       everything
ARG SET=minimal
ARG EXTRAS=""
WORKDIR /src
# dependencies first, for an empty package: a change of the code installs none of them again
COPY requirements-dev.lock pyproject.toml README.md LICENSE ./
RUN mkdir copilot_runtime \
    && touch copilot_runtime/__init__.py \
    && python3 -m venv /venv \
    && case "$SET" in \
        minimal) extras="" ;; \
        team) extras="auth,knowledge,limits,mcp,postgres,prices,redis,s3,telemetry" ;; \
        services) extras="auth,grpc,knowledge,limits,postgres,redis,s3" ;; \
        all) extras="all" ;; \
        *) echo "SET is minimal, team, services or all, and not $SET" >&2; exit 1 ;; \
    esac \
    && extras="$extras${extras:+${EXTRAS:+,}}$EXTRAS" \
    && /venv/bin/pip install --no-cache-dir --constraint requirements-dev.lock ".${extras:+[$extras]}"
COPY copilot_runtime copilot_runtime
RUN /venv/bin/pip install --no-cache-dir --no-deps --force-reinstall .

FROM ${BASE}
LABEL org.opencontainers.image.title="copilot-runtime" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --create-home --uid 10001 copilot \
    && install -d -o copilot -g copilot /app/.copilot
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 COPILOT_HOST=0.0.0.0 COPILOT_PORT=8000
# a number, so that Kubernetes sees that it is not root
USER 10001:10001
WORKDIR /app
EXPOSE 8000
# an application of yours, with a runtime mounted, may have no /health or ask for a login there
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['COPILOT_PORT']), timeout=2); c.request('GET', '/health'); sys.exit(c.getresponse().status >= 500)"]
ENTRYPOINT ["copilot-runtime"]
CMD ["serve"]
