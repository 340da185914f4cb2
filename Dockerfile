# The proxy's image: docker build -t idemproxy .
# Two stages; only the finished environment reaches the second. tests/charts/test_dockerfile.py follows these lines.

# Tag and digest: a tag can be moved, the digest says what is meant. The digest is the one of the index of all
# platforms. Who changes one of the two looks up the other: docker buildx imagetools inspect python:...
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1

FROM ${PYTHON_IMAGE} AS build
ARG UV_VERSION=0.13.9
ENV UV_PROJECT_ENVIRONMENT=/opt/idemproxy/venv \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1 \
    UV_PYTHON_DOWNLOADS=never
RUN python -m pip install --no-cache-dir --disable-pip-version-check "uv==${UV_VERSION}"
WORKDIR /build

# The dependencies are a layer of their own: they change seldom. Only finished wheels: nothing is compiled here.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --extra otlp --no-install-project --no-build

COPY README.md LICENSE hatch_build.py ./
COPY src src
COPY proxy proxy
COPY codecs codecs
COPY state state
COPY producing producing
COPY client client
COPY demo demo
COPY pipeline pipeline
# A folder that was forgotten above gives a package that lacks it without any error, hence the import.
# The kernel is compiled with the compiler in PyPI's ziglang, which is there only meanwhile: the image has none.
# The bill of materials names every package of the environment with its hashes, as the lock file has them.
RUN KERNEL_COMPILER=zig uv sync --frozen --no-dev --extra otlp --no-editable \
    && /opt/idemproxy/venv/bin/python -c "import idemproxy.proxy.process.run, idemproxy.state.redis_store" \
    && /opt/idemproxy/venv/bin/python -c "import idemproxy.codecs.kernel.compiled" \
    && uv export --frozen --no-dev --extra otlp --quiet --format cyclonedx1.5 --preview-features sbom-export \
       --output-file /opt/idemproxy/sbom.cdx.json \
    && mkdir -p /opt/idemproxy/data

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="idemproxy" \
      org.opencontainers.image.description="Kafka proxy that gives producers idempotence in front of brokers that have none" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
# What installs packages is of no use here, but to an intruder.
RUN python -m pip uninstall --yes --quiet --disable-pip-version-check --root-user-action ignore setuptools wheel pip
COPY --from=build /opt/idemproxy/venv /opt/idemproxy/venv
COPY --from=build /opt/idemproxy/sbom.cdx.json /opt/idemproxy/sbom.cdx.json
# The embedded Redis writes here; with an external one only small files do. Nothing else is ever written but /tmp.
COPY --from=build --chown=10001:10001 /opt/idemproxy/data /opt/idemproxy/data
ENV PATH=/opt/idemproxy/venv/bin:$PATH \
    HOME=/opt/idemproxy/data \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    IDEMPROXY_DEFAULT_LISTEN=0.0.0.0:9092 \
    IDEMPROXY_DEFAULT_ADMIN_BIND=127.0.0.1:9644
RUN python -c "import idemproxy.proxy.process.run, idemproxy.state.redis_store"
WORKDIR /opt/idemproxy/data
VOLUME /opt/idemproxy/data
USER 10001:10001
# The bootstrap port, then one port for each broker (bootstrap + 1 + broker id); 9644 is the admin port.
EXPOSE 9092 9093-9102 9644
STOPSIGNAL SIGTERM
# Asks the admin port, wherever HEALTH_URL says that it is. Kubernetes has probes instead.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(os.environ.get('HEALTH_URL', 'http://127.0.0.1:9644/livez'), timeout=4)"]
ENTRYPOINT ["idemproxy"]
CMD ["run", "--config", "/etc/idemproxy/idemproxy.yaml"]
