# What runs on a rented machine: the agent and the prover, and nothing of the control plane; see docs/images.md.
# BASE is any image with Python 3.11 or newer and its venv module; the NVIDIA driver comes from the machine.
ARG BASE=python:3.11-slim

# For which GPUs there is machine code; newer ones compile the PTX that lies beside it. Empty: the prover works on the CPU.
ARG GPU_ARCHITECTURES="sm_86 sm_89 sm_90 sm_120"

# The kernels, and of their compiler (800 MB) nothing else, go into the image.
FROM ${BASE} AS kernels
ARG GPU_ARCHITECTURES
WORKDIR /src
COPY requirements requirements
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/run/secrets/ca.crt \
    --mount=type=cache,target=/root/.cache/pip \
    mkdir /kernels && if [ -n "${GPU_ARCHITECTURES}" ]; then \
        python3 -m venv /build && /build/bin/pip install -q --require-hashes -r requirements/kernels.txt; fi
COPY gpu gpu
RUN if [ -n "${GPU_ARCHITECTURES}" ]; then \
        /build/bin/python -B -m gpu.cuda.build /kernels $(printf -- "--arch %s " ${GPU_ARCHITECTURES}); fi

FROM ${BASE} AS build
ARG GPU_ARCHITECTURES
WORKDIR /src
COPY requirements requirements
# As in control.Dockerfile: only /opt/provefleet leaves this stage.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/run/secrets/ca.crt \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /build && python3 -m venv --without-pip /opt/provefleet \
    && /build/bin/pip install -q --require-hashes -r requirements/build.txt \
    && /build/bin/pip --python /opt/provefleet/bin/python install -q --require-hashes \
        -r "requirements/$([ -n "${GPU_ARCHITECTURES}" ] && echo cuda || echo base).txt"
COPY pyproject.toml README.md LICENSE provefleet.py ./
# From there, not anew: the prover refuses kernels that were made from other sources than its own.
COPY --from=kernels /src/gpu gpu
COPY logs logs
RUN /build/bin/pip wheel -q --no-index --no-deps --no-build-isolation -w /wheel . \
    && /build/bin/pip --python /opt/provefleet/bin/python install -q --no-index --no-deps /wheel/*.whl

FROM ${BASE}
ARG BASE
ARG GPU_ARCHITECTURES
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
      provefleet.gpu-architectures="${GPU_ARCHITECTURES}"
RUN groupadd --system --gid 10001 prover \
    && useradd --system --uid 10001 --gid 10001 --home-dir /work --shell /usr/sbin/nologin prover \
    && install -d -o prover -g prover -m 0700 /work
COPY --from=build /opt/provefleet /opt/provefleet
COPY --from=kernels /kernels /opt/provefleet/kernels
# The NVIDIA runtime reads its two; without it they mean nothing.
ENV PATH=/opt/provefleet/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/work/numba \
    PROVEFLEET_WORK_DIR=/work/instance \
    PROVEFLEET_CACHE_DIR=/work/params \
    PROVEFLEET_CUDA_KERNELS=/opt/provefleet/kernels \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER prover
WORKDIR /work
# No HEALTHCHECK: the agent's lease is what the controller goes by.
ENTRYPOINT ["/opt/provefleet/bin/python", "-P", "-m", "gpu.agent"]
