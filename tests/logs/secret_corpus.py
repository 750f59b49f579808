"""Secrets in the shapes in which programs print them, and what provers print that looks alike. All of them are made up:
letters and digits are drawn with a fixed seed, in the lengths and alphabets that the issuers document."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator

_random = random.Random(5)
ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"


def drawn(length: int, alphabet: str = ALNUM) -> str:
    """Made-up characters; a digit is among them, as in nearly every real one."""
    return "".join(_random.choices(alphabet, k=length - 1)) + _random.choice("23456789")


def _claims() -> str:
    return base64.urlsafe_b64encode(f'{{"a":"{drawn(12)}"}}'.encode()).decode().rstrip("=")


def _tokens() -> Iterator[tuple[str, str]]:
    """(what is printed before, the secret) of tokens that say what they are."""
    for prefix, length, alphabet in (
        ("AKIA", 16, string.ascii_uppercase),
        ("ASIA", 16, string.ascii_uppercase),
        ("ghp_", 36, ALNUM),
        ("gho_", 36, ALNUM),
        ("ghu_", 36, ALNUM),
        ("ghs_", 36, ALNUM),
        ("ghr_", 36, ALNUM),
        ("github_pat_", 82, ALNUM + "_"),
        ("glpat-", 20, ALNUM),
        ("gldt-", 20, ALNUM),
        ("glrt-", 20, ALNUM),
        ("xoxb-", 40, LOWER + "-"),
        ("xoxp-", 60, LOWER + "-"),
        ("xapp-1-", 60, ALNUM),
        ("sk_live_", 24, ALNUM),
        ("rk_live_", 24, ALNUM),
        ("sk_test_", 24, ALNUM),
        ("whsec_", 32, ALNUM),
        ("sk-", 48, ALNUM),
        ("sk-proj-", 64, ALNUM + "_-"),
        ("sk-ant-api03-", 80, ALNUM + "_-"),
        ("AIza", 35, ALNUM),
        ("ya29.", 100, ALNUM),
        ("GOCSPX-", 28, ALNUM),
        ("hf_", 34, ALNUM),
        ("npm_", 36, ALNUM),
        ("pypi-", 120, ALNUM),
        ("dckr_pat_", 27, ALNUM),
        ("dop_v1_", 64, HEX),
        ("SG.", 22, ALNUM),
        ("shpat_", 32, HEX),
        ("sq0atp-", 22, ALNUM),
        ("dapi", 32, HEX),
        ("hvs.", 40, ALNUM),
        ("tskey-auth-", 30, ALNUM),
        ("glsa_", 40, ALNUM),
        ("glc_", 60, ALNUM),
        ("NRAK-", 27, string.ascii_uppercase),
        ("sntrys_", 60, ALNUM),
        ("lin_api_", 40, ALNUM),
        ("ntn_", 46, ALNUM),
        ("HRKU-", 60, ALNUM),
        ("fm2_", 80, ALNUM),
        ("AGE-SECRET-KEY-1", 58, string.ascii_uppercase),
        ("nvapi-", 64, ALNUM),
        ("rpa_", 40, ALNUM),
        ("r8_", 37, ALNUM),
        ("gsk_", 52, ALNUM),
        ("xai-", 80, ALNUM),
    ):
        body = drawn(length, alphabet)
        yield prefix, body + f".{drawn(43)}" if prefix == "SG." else body
    header, claims = (
        base64.urlsafe_b64encode(f'{{"a":"{drawn(12)}"}}'.encode()).decode().rstrip("=") for _ in range(2)
    )
    yield "", f"{header}.{claims}.{drawn(43)}"


AROUND = (
    "{}",
    "clone with {} done",
    "export X={}",
    '{{"value": "{}"}}',
    "-H 'X-Thing: {}'",
    "https://host/p?x={}&y=1",
    "[{}]",
    "x: {}",
    'Some("{}")',
    "\x1b[32m{}\x1b[0m",
)
NAMES = (
    "password",
    "db_password",
    "PASSWD",
    "api_key",
    "API-KEY",
    "apiKey",
    "AWS_SECRET_ACCESS_KEY",
    "secret",
    "client_secret",
    "access_token",
    "AUTH_TOKEN",
    "_authToken",
    "passphrase",
    "private_key",
    "X-Api-Key",
    "REDIS_PASS",
    "credentials",
    "STORAGE_ACCOUNT_KEY",
    "encryption_key",
    "vast_token",
)
PAIRS = (
    '{{"{n}": "{s}"}}',
    '{{"a":1,"{n}":"{s}","b":2}}',
    "{{'{n}': '{s}', 'b': 2}}",
    "{n}={s}",
    'export {n}="{s}"',
    "+ export '{n}={s}'",
    "{n}: {s}",
    "  - {n}: '{s}'",
    '{n} = "{s}"  # toml',
    "{n} => '{s}'",
    "GET /x?{n}={s}&page=2 200",
    "curl -H '{n}: {s}' http://h/",
    '{{\\"{n}\\":\\"{s}\\",\\"b\\":2}}',
    'Config {{ {n}: "{s}", retries: 3 }}',
    'Config {{ {n}: Some("{s}") }}',
    "HOME=/root\x00{n}={s}\x00TERM=xterm",
    "level=info {n}={s} took=3ms",
    "--{n} {s} --x 1",
    "body={n}%3D{s}",
    "INFO env[{n}] = {s}",
)


def _formats() -> Iterator[tuple[str, str]]:
    """(line with {}, the secret) of formats of their own."""
    word = lambda n=20: drawn(n)  # noqa: E731
    basic = base64.b64encode(f"user:{word()}".encode()).decode()
    for line in (
        "Authorization: Basic {}",
        "authorization: bearer {}",
        '"Authorization": "Token {}"',
        "Proxy-Authorization: Basic {}",
        "curl -H 'Authorization: ApiKey {}' http://h",
        "> Authorization: Negotiate {}",
        '{{\\"Authorization\\": \\"Bearer {}\\"}}',
        'docker login: {{"auths": {{"r.io": {{"auth": "{}"}}}}}}',
        "//registry.npmjs.org/:_auth={}",
    ):
        yield line, basic
    for line in (
        "redis://user:{}@10.0.0.1:6379/0",
        "postgresql://pf:{}@db/pf",
        "http://:{}@proxy:3128",
        "amqp://u:{}@h:5672/%2f",
        "cloning https://x-access-token:{}@github.com/a/b",
        "https://{}@sentry.example/12",
        "mongodb+srv://u:{}@c.example/x",
        "curl -u admin:{} https://h",
        "curl --user 'admin:{}' https://h",
        "wget --password {} https://h",
        "sshpass -p {} ssh root@h",
        "mysql -u root -p{} db",
        "redis-cli -h h -a {} ping",
        "requirepass {}",
        "machine h login me password {}",
        "CREATE USER x IDENTIFIED BY '{}'",
        "ALTER ROLE x WITH PASSWORD '{}'",
        "vastai set api-key {}",
        "the password is {}",
        "your token is: {}",
        "<password>{}</password>",
        '<add key="x"><secret type="s">{}</secret>',
        "Server=h;Uid=sa;Pwd={};Timeout=3",
        'wpa psk="{}"',
        "Cookie: session={}; theme=dark",
        "Set-Cookie: sid={}; HttpOnly",
        "PresharedKey = {}=",
        "PrivateKey = {}=",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}==;EndpointSuffix=core",
        "mnemonic: {} abandon ability able",
        "https://hooks.slack.com/services/T0000/B000/{}",
        "https://discord.com/api/webhooks/123456789/{}",
        "POST https://api.telegram.org/bot123456789:{}/send",
        "Seed phrase: {} zoo zoo",
        "otpauth://totp/x?secret={}&issuer=y",
        "otp secret {}".replace("secret ", "secret="),
        "+ PGPASSWORD={} psql -h h",
        "sudo -S <<< password={}",
        "error: invalid Password={} for user x",
        'Token: token="{}", refresh',
        "'passwd' => '{}'",
        '[DEBUG] secret := "{}"',
        "token:\t{}",
        'password:"{}"',
        "api key: {}",
        "api_key_b64={}",
        "password2={}",
        "token={}\r",
    ):
        yield line, word(28)
    for line in (
        "https://s3/x?X-Amz-Credential=a&X-Amz-Signature={}",
        "x-amz-security-token: {}",
        "?X-Goog-Signature={}&x=1",
        "https://a.blob.core.windows.net/c?sv=2022&sig={}&se=1",
        "http://m/files/i/k?expires=9&signature={}",
        "Authorization: AWS4-HMAC-SHA256 Credential=AK/2026/s3, SignedHeaders=host, Signature={}",
    ):
        yield line, drawn(64, HEX)
    for value in (
        "p4ss,word;x&y",
        'quo\\"ted5ecret',
        "with blanks 55x",
        "p@ss/w0rd!9",
        "ünïcödé77",
        "$2b$12$abcdefghijkl9",
    ):
        yield f'{{"password": "{value}"}}'.replace("{", "{{").replace("}", "}}").replace(value, "{}"), value


def secrets() -> list[tuple[str, str]]:
    """(text, the secret in it), at least 200 kinds of them, in many more places."""
    found: list[tuple[str, str]] = []
    for prefix, body in _tokens():
        found += [(around.format(prefix + body), body) for around in AROUND]
    for i, name in enumerate(NAMES):
        for j, pair in enumerate(PAIRS):
            if pair.startswith("--"):
                name = name.strip("_").lower().replace("_", "-")
            value = drawn(8 + (i * 7 + j) % 30, ALNUM + "-_./+")
            found.append((pair.format(n=name, s=value), value))
    found += [(line.format(value), value) for line, value in _formats()]
    return found


def blocks() -> list[tuple[str, list[str]]]:
    """(text, lines that are secret) of private keys over several lines, and in one line of JSON."""
    kinds = ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "DSA ")
    found = []
    for kind in kinds:
        body = [drawn(64) for _ in range(3)]
        text = "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *body, f"-----END {kind}PRIVATE KEY-----"])
        found += [(f"x\n{text}\ny\n", body), ("\n".join(f"    {line}" for line in text.split("\n")) + "\n", body)]
        found += [(json.dumps({"private_key": text + "\n", "b": 1}) + "\n", body)]
    body = [drawn(64) for _ in range(3)]
    pgp = "\n".join(["-----BEGIN PGP PRIVATE KEY BLOCK-----", "", *body, "-----END PGP PRIVATE KEY BLOCK-----"])
    return [*found, (f"{pgp}\nend\n", body)]


ORDINARY = (
    "2026-11-30T11:16:59Z proof 12/12 ok in 3.412 s, 31 +- 6 proofs/h",
    f"sha256 {'a5' * 32}  circuit.zkey",
    f"commd: baga6ea4seaq{'ao7s73y24kcutaosvacpdjgfe5pw76ooefnyqw4ynr3d2y6x2mpq'} commr ok",
    "proving key: /data/params/circuit.zkey (412 MB), verification key: 5 points",
    "verifying key loaded, 3 public inputs; key switching done; key=abc monkey: 5 keyboard=us",
    "token count 12, tokens: 55, std::token::parse ok; unexpected token: expected `}`",
    "the bearer certificates are fine; basic operations took 3 s; basic block 0x1f",
    "secret sharing was used; password prompt skipped; no password required",
    "GET http://127.0.0.1:8333/bucket/key 200; GET http://h:80/a/b@c 404",
    "public inputs [21888242871839275222246405745257275088548364400416034343698204186575808495617]",
    "0: core::panicking::panic at /rustc/abc/library/core/src/panicking.rs:64:14",
    "thread 'main' panicked at src/groth16/prover.rs:412:33: called `Result::unwrap()` on an `Err` value",
    "CUDA error: no kernel image is available for execution on the device (209)",
    "NVRM: Xid (PCI:0000:41:00): 79, pid=1234, GPU has fallen off the bus.",
    "image ghcr.io/org/prover@sha256:" + "0f" * 32,
    "pulling from registry: layer 3f2a9c: 412.3 MB of 2.1 GB",
    "docker run -u 1000:1000 --gpus all --shm-size 16g image",
    "Authorization: required; authorization failed: no token given",
    "PWD=/work/instance OLDPWD=/ PATH=/usr/bin:/bin SHLVL=1 HOME=/work",
    "pass: 12, fail: 0; 12 pass; pass rate = 100%; auth: none; author: somebody",
    "Failed to verify: credentials: none; password: null; token: undefined; secret = false",
    "ssh git@github.com: permission denied (publickey); https://github.com/a/b.git cloned",
    "wrote /work/params/key.zkey --out /work/proofs --progress /work/progress.jsonl --key-file /k",
    "uuid 6c4f2267-7033-4ad4-b968-5b7cd52642a7 label C.32733029 task-runner-0123456789abcdef01",
    "sk_buff allocation failure; disk-usage-monitor-with-a-long-name ok; mask-generation-kernel-v2 done",
    '{"event": "proof", "index": 3, "ms": 4123.5, "timings": {"ntt": 12.5, "msm": 800.1}}',
    "pi_a: [0x1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f809, 0x1]",
    "signature verified; signal 9 received; sig handler installed; design=ok",
    "cookie jar is empty; phrase: hello world; login shell: /bin/bash",
)
