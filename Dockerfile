# The proxy's image: docker build -t idemproxy .
# Two stages; only the finished environment reaches the second. tests/charts/test_dockerfile.py follows these lines.

# A tag can be moved. To pin what was tested, hand over a digest:
#   docker build --build-arg PYTHON_IMAGE=python:3.11.13-slim-bookworm@sha256:... .
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG UV_VERSION=0.13.9
ENV UV_PROJECT_ENVIRONMENT=/opt/idemproxy/venv \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1 \
    UV_PYTHON_DOWNLOADS=never
RUN python -m pip install --disable-pip-version-check "uv==${UV_VERSION}"
WORKDIR /build

# The dependencies are a layer of their own: they change seldom. Only finished wheels: nothing is compiled here.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --extra otlp --no-install-project --no-build

COPY README.md LICENSE ./
COPY src src
COPY proxy proxy
COPY codecs codecs
COPY state state
COPY demo demo
RUN uv sync --frozen --no-dev --extra otlp --no-editable
# A folder that was forgotten above gives a package that lacks it without any error.
RUN /opt/idemproxy/venv/bin/python -c "import idemproxy.proxy.main, idemproxy.state.redis_store"
RUN mkdir -p /opt/idemproxy/data

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="idemproxy" \
      org.opencontainers.image.description="Kafka proxy that gives producers idempotence in front of brokers that have none" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/idemproxy/venv /opt/idemproxy/venv
# The embedded Redis writes here; with an external one only small files do.
COPY --from=build --chown=10001:10001 /opt/idemproxy/data /opt/idemproxy/data
ENV PATH=/opt/idemproxy/venv/bin:$PATH \
    HOME=/opt/idemproxy/data \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
RUN python -c "import idemproxy.proxy.main, idemproxy.state.redis_store"
WORKDIR /opt/idemproxy/data
VOLUME /opt/idemproxy/data
USER 10001:10001
# The bootstrap port, then one port for each broker: bootstrap + 1 + broker id.
EXPOSE 9092 9093-9102
STOPSIGNAL SIGTERM
ENTRYPOINT ["idemproxy"]
CMD ["--help"]
