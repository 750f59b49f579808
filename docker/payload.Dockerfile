# What runs on a rented machine: the agent and the prover, and nothing of the control plane; see docs/images.md.
# BASE is any image with Python 3.11 or newer and its venv module; the NVIDIA driver comes from the machine.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
# A hash-pinned requirements file in the build context with the CUDA wheels; empty: the prover works on the CPU.
ARG CUDA_REQUIREMENTS=
WORKDIR /src
COPY requirements requirements
# As in control.Dockerfile: only /opt/provefleet leaves this stage.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/run/secrets/ca.crt \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /build && python3 -m venv --without-pip /opt/provefleet \
    && /build/bin/pip install -q --require-hashes -r requirements/build.txt \
    && /build/bin/pip --python /opt/provefleet/bin/python install -q --require-hashes -r requirements/base.txt \
        ${CUDA_REQUIREMENTS:+-r "${CUDA_REQUIREMENTS}"}
COPY pyproject.toml README.md LICENSE provefleet.py ./
COPY gpu gpu
COPY logs logs
RUN /build/bin/pip wheel -q --no-index --no-deps --no-build-isolation -w /wheel . \
    && /build/bin/pip --python /opt/provefleet/bin/python install -q --no-index --no-deps /wheel/*.whl

FROM ${BASE}
ARG BASE
ARG CUDA_REQUIREMENTS=
ARG VERSION=0.1.0
ARG REVISION=unknown
# What an operator may ask an image before renting a machine for it.
LABEL org.opencontainers.image.title="provefleet payload groth16" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}" \
      provefleet.agent-protocol="1" \
      provefleet.payload="groth16" \
      provefleet.curves="bn254 bls12381" \
      provefleet.cuda-requirements="${CUDA_REQUIREMENTS}"
RUN groupadd --system --gid 10001 prover \
    && useradd --system --uid 10001 --gid 10001 --home-dir /work --shell /usr/sbin/nologin prover \
    && install -d -o prover -g prover -m 0700 /work
COPY --from=build /opt/provefleet /opt/provefleet
# The NVIDIA runtime reads its two; without it they mean nothing.
ENV PATH=/opt/provefleet/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/work/numba \
    PROVEFLEET_WORK_DIR=/work/instance \
    PROVEFLEET_CACHE_DIR=/work/params \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER prover
WORKDIR /work
# No HEALTHCHECK: the agent's lease is what the controller goes by.
ENTRYPOINT ["/opt/provefleet/bin/python", "-P", "-m", "gpu.agent"]
