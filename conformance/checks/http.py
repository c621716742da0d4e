"""Before the socket: who is let in, and what is said to the others."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import aiohttp

from ..check import ConformanceError, check, check_each, expect, same
from ..scene import Response, Scene

_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"conformance-test").decode(),
}


def _with(scene: Scene, make: Callable[[str], str | None]) -> dict[str, str]:
    value = make(scene.lab.secret)
    return _UPGRADE | ({} if value is None else {"Authorization": value})


def _unauthorized(answer: Response, *, offered: bool = False) -> None:
    if offered and answer.status == 429:
        # The wrong secrets of other checks have locked this address out.
        expect(answer.headers.get("Retry-After", "").isdigit(), "429 without Retry-After")
        return
    same(answer.status, 401, "status")
    expect("bearer" in answer.headers.get("WWW-Authenticate", "").lower(), "no WWW-Authenticate: Bearer")


@check_each(
    "http/refused",
    "P-HELLO-2",
    cases={
        "no-secret": lambda _: None,
        "wrong-secret": lambda secret: f"Bearer {'x' * len(secret)}",
        "empty-secret": lambda _: "Bearer ",
        "scheme-alone": lambda _: "Bearer",
        "secret-with-one-more-character": lambda secret: f"Bearer {secret}x",
        "beginning-of-the-secret": lambda secret: f"Bearer {secret[:-1]}",
        "secret-twice": lambda secret: f"Bearer {secret} {secret}",
        "wrong-case": lambda secret: f"Bearer {secret.swapcase()}",
        "basic-scheme": lambda secret: "Basic " + base64.b64encode(f"pheby:{secret}".encode()).decode(),
        "secret-without-scheme": lambda secret: secret,
        "secret-behind-another-scheme": lambda secret: f"Token {secret}",
    },
)
async def refused(scene: Scene, make: Callable[[str], str | None]) -> None:
    """A request without the right secret gets 401 (429 from where many wrong ones came) and no socket."""
    headers = _with(scene, make)
    _unauthorized(await scene.request("v1/ws", secret=None, **headers), offered="Authorization" in headers)


@check_each("http/secret-in-query", "P-HELLO-2", cases={"token": "token", "access-token": "access_token"})
async def secret_in_query(scene: Scene, name: str) -> None:
    """A secret in the address does not count."""
    _unauthorized(await scene.request("v1/ws", secret=None, params={name: scene.lab.secret}, **_UPGRADE))


@check("http/cookie", "P-HELLO-2")
async def cookie(scene: Scene) -> None:
    """A secret in a cookie does not count"""
    _unauthorized(await scene.request("v1/ws", secret=None, Cookie=f"secret={scene.lab.secret}", **_UPGRADE))


@check("http/right-secret", "P-HELLO-2")
async def right_secret(scene: Scene) -> None:
    """The right secret gets a socket."""
    await scene.phone()


@check("http/right-secret-after-wrong-ones", "P-HELLO-3")
async def after_wrong_ones(scene: Scene) -> None:
    """The right secret passes from an address with many wrong ones."""
    for number in range(25):
        answer = await scene.request("v1/ws", secret=f"wrong-{number}-{'x' * 30}", **_UPGRADE)
        expect(answer.status in (401, 429), f"a wrong secret is answered {answer.status}")
        if answer.status == 429:
            expect(answer.headers.get("Retry-After", "").isdigit(), "429 without Retry-After")
    try:
        await scene.in_step()
    except aiohttp.WSServerHandshakeError as failure:
        raise ConformanceError(f"the right secret is answered {failure.status}") from None


@check("http/no-upgrade", "P-HELLO-2")
async def no_upgrade(scene: Scene) -> None:
    """A request with the right secret that asks for no upgrade gets 426."""
    same((await scene.request("v1/ws")).status, 426, "status")


@check("http/secret-before-upgrade", "P-HELLO-2")
async def secret_first(scene: Scene) -> None:
    """The secret is decided first: without it even a request for no upgrade gets 401."""
    _unauthorized(await scene.request("v1/ws", secret=None))


@check("http/health", "P-HELLO-2")
async def health(scene: Scene) -> None:
    """/healthz answers 200 without a secret, and shows none."""
    answer = await scene.request("healthz", secret=None)
    same(answer.status, 200, "status")
    expect(scene.lab.secret.encode() not in answer.body, "the secret is in the answer")


@check("http/unknown-address", "P-ATT-4")
async def unknown_address(scene: Scene) -> None:
    """An unknown address gets 404, without the secret 401."""
    same((await scene.request("v1/nothing-here")).status, 404, "status with the secret")
    same((await scene.request("v1/nothing-here", secret=None)).status, 401, "status without the secret")


@check_each(
    "http/body",
    "P-ERR-1",
    cases={
        "unauthorized": (None, "v1/ws", "unauthorized"),
        "upgrade-required": ("", "v1/ws", "upgrade_required"),
        "not-found": ("", "v1/attachments/att_0", "not_found"),
    },
)
async def body(scene: Scene, case: tuple[str | None, str, str]) -> None:
    """An HTTP error has a body with its stable code and a text."""
    secret, path, code = case
    answer = await scene.request(path, secret=secret)
    content = json.loads(answer.body)
    same(content.get("code"), code, "code")
    expect(isinstance(content.get("message"), str) and content["message"], "no message")


@check("http/subprotocol", "P-HELLO-2")
async def subprotocol(scene: Scene) -> None:
    """Unknown WebSocket subprotocols are ignored."""
    phone = await scene.phone(protocols=("something.else",))
    await phone.hello()
