# docker build -t copilot-runtime .
# docker run -p 8000:8000 copilot-runtime                                  the demo
# docker run -p 8000:8000 -e OPENAI_API_KEY copilot-runtime                a model
# docker run -p 8000:8000 -v ./my:/app -v threads:/app/.copilot copilot-runtime serve my_module:runtime
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements-dev.lock pyproject.toml README.md LICENSE ./
COPY copilot_runtime copilot_runtime
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --constraint requirements-dev.lock ".[all]"

FROM python:3.12-slim
LABEL org.opencontainers.image.title="copilot-runtime" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --create-home --uid 10001 copilot \
    && install -d -o copilot -g copilot /app/.copilot
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 COPILOT_HOST=0.0.0.0 COPILOT_PORT=8000
USER copilot
WORKDIR /app
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"COPILOT_PORT\"]}/health', timeout=2)"]
ENTRYPOINT ["copilot-runtime"]
CMD ["serve"]
