"""Headers, the content policy, which hosts and callers are served, CSRF, rate limits, the secret key."""

from __future__ import annotations

import hashlib
import secrets
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from flask import Flask, Response, abort, g, request
from flask.sessions import SecureCookieSessionInterface
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address
from flask_wtf.csrf import CSRFProtect

from jobs.kept_secret import kept_secret
from web import scope

csrf = CSRFProtect()
limiter = Limiter(get_remote_address)

UNSAFE = {"POST", "PUT", "PATCH", "DELETE"}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # not no-referrer: Flask-WTF checks it over https
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=(), browsing-topics=()",
    "X-Frame-Options": "DENY",
}
POLICY = (
    "default-src 'self'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)


def secret_key(state_dir: Path) -> str:
    """The key that signs cookies: made once, kept in the state folder, readable by its owner only."""
    return kept_secret(state_dir, "secret_key", lambda: secrets.token_hex(32))


class _CookieInterface(SecureCookieSessionInterface):
    """Flask's signed cookie (CSRF token and notices only), `__Host-` and Secure when we are served by https."""

    def get_cookie_name(self, app: Flask) -> str:
        return cookie_name("pf_form", app)

    def get_cookie_secure(self, app: Flask) -> bool:
        return request.is_secure


def cookie_name(stem: str, app: Flask) -> str:
    """Cookies know no port: the tail keeps two fleets on one host apart."""
    tail = hashlib.sha256(str(app.secret_key).encode()).hexdigest()[:8]
    return f"__Host-{stem}_{tail}" if request.is_secure else f"{stem}_{tail}"


def nonce() -> str:
    if "nonce" not in g:
        g.nonce = secrets.token_urlsafe(16)
    return str(g.nonce)


def attach(app: Flask) -> None:
    app.session_interface = _CookieInterface()
    app.config.update(SESSION_COOKIE_HTTPONLY=True, SESSION_COOKIE_SAMESITE="Lax")
    app.before_request(check_host)
    app.before_request(check_caller)
    csrf.init_app(app)
    limiter.init_app(app)
    app.after_request(add_headers)
    app.jinja_env.globals["csp_nonce"] = nonce


def check_host() -> None:
    """Against DNS rebinding: a stranger's name that points at us is not served.

    An address in numbers can't be rebound; names are `localhost` and those that the settings know.
    """
    host = urlsplit(f"//{request.host}").hostname or ""
    settings = scope.context().settings
    known = {
        "localhost",
        urlsplit(f"//{settings.site_bind}").hostname,
        urlsplit(settings.site_url).hostname,
        urlsplit(settings.public_url).hostname,
    }
    if host in known or host.endswith(".localhost"):
        return
    try:
        ip_address(host)
    except ValueError:
        abort(400, description="This site is not served under that name. Use its address, or localhost.")


def check_caller() -> None:
    """An unsafe request must come from one of our own pages (the browser says so; a script says nothing)."""
    if request.method not in UNSAFE:
        return
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        allowed = site in ("same-origin", "none")
    else:
        allowed = origin is None or urlsplit(origin).netloc == request.host
    if not allowed:
        abort(403, description="Another site sent this form. Open the page here and try again.")


def add_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Content-Security-Policy", POLICY.format(nonce=nonce()))
    if request.endpoint != "static":
        response.headers.setdefault("Cache-Control", "no-store")
    elif "v" not in request.args:
        response.headers["Cache-Control"] = "no-cache"  # a module that imports another knows no hash
    if request.is_secure:
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
    return response
