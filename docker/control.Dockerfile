# The control plane: site, machine app, workers, cron and reconcile are one image; docs/images.md says how to run it.
# BASE is any image with Python 3.11 or newer and its venv module; pin yours: --build-arg BASE=python:3.11-slim@sha256:...
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/control.txt requirements/
# pip.conf and ca.crt are the build host's own, where it needs any. Of this stage only /opt/provefleet is kept: no pip, no
# cache, no address of a registry. Two environments, since the wheel's build tools have no work at run time.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/run/secrets/ca.crt \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /build && python3 -m venv --without-pip /opt/provefleet \
    && /build/bin/pip install -q --require-hashes -r requirements/build.txt \
    && /build/bin/pip --python /opt/provefleet/bin/python install -q --require-hashes -r requirements/control.txt
COPY . .
RUN /build/bin/pip wheel -q --no-index --no-deps --no-build-isolation -w /wheel . \
    && /build/bin/pip --python /opt/provefleet/bin/python install -q --no-index --no-deps /wheel/*.whl

FROM ${BASE}
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="provefleet control plane" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# A volume on the state folder takes owner and mode from here.
RUN groupadd --system --gid 10001 provefleet \
    && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/provefleet --shell /usr/sbin/nologin provefleet \
    && install -d -o provefleet -g provefleet -m 0700 /var/lib/provefleet
COPY --from=build /opt/provefleet /opt/provefleet
COPY --chmod=0755 docker/entrypoint /usr/local/bin/entrypoint
# The binds are for this container's own network; compose.yaml publishes them on loopback only.
ENV PATH=/opt/provefleet/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/lib/provefleet/cache/numba \
    PROVEFLEET_STATE_DIR=/var/lib/provefleet \
    PROVEFLEET_SITE_BIND=0.0.0.0:8000 \
    PROVEFLEET_AGENT_BIND=0.0.0.0:8001
USER provefleet
WORKDIR /var/lib/provefleet
EXPOSE 8000 8001
ENTRYPOINT ["/usr/local/bin/entrypoint"]
CMD ["up"]
# For `up` and `site`; compose.yaml has the other parts' own.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["/usr/local/bin/entrypoint", "health", "site"]
