"""TLS settings as RocketMQ names them, and the contexts made of them.

    tls.server.mode                disabled, permissive (default: plain and TLS on one port), enforcing
    tls.test.mode.enable           true by default: the server has a certificate made on the fly, the client trusts all
    tls.server.certPath, .keyPath, .keyPassword        the server's own, PEM
    tls.server.authClient, .trustCertPath              whether clients' certificates are verified, and against what
    tls.server.need.client.auth    none, optional, require
    tls.client.certPath, .keyPath, .keyPassword, .authServer, .trustCertPath     the same from the client's side
    tls.ciphers, tls.protocols     lists with commas
    tls.config.file                a properties file with all but the mode and tls.enable; it wins

Differs: Java takes a word it does not know for false, none or permissive, which leaves a server open that was meant to
be closed. Here it is an error, and a `tls.` key that there is not is told like any other.

Differs: test mode's certificate has an elliptic key where Netty's has RSA, because it is made with the first handshake
and must not hold the loop up; a client that allows RSA suites only needs a certificate of your own.

Differs: `need.client.auth=require` without `authClient` asks for no certificate. Apache demands one and then believes
whatever it is given, which is no protection and which OpenSSL does not offer.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import importlib.util
import logging
import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pymq import java_properties
from pymq.errors import ConfigError
from pymq.properties_file import read_text
from pymq.remoting.config import TlsConfig, TlsMode

logger = logging.getLogger(__name__)

CERTIFICATE_DAYS = 3650
PATHS = {
    "tls.server.certPath": "server_cert_path",
    "tls.server.keyPath": "server_key_path",
    "tls.server.trustCertPath": "server_trust_cert_path",
    "tls.client.certPath": "client_cert_path",
    "tls.client.keyPath": "client_key_path",
    "tls.client.trustCertPath": "client_trust_cert_path",
}
TEXTS = {
    "tls.server.keyPassword": "server_key_password",
    "tls.client.keyPassword": "client_key_password",
    "tls.ciphers": "ciphers",
    "tls.protocols": "protocols",
}
SWITCHES = {
    "tls.test.mode.enable": "test_mode_enable",
    "tls.server.authClient": "server_auth_client",
    "tls.client.authServer": "client_auth_server",
}
SERVER_MODE, CLIENT_ENABLE, CONFIG_FILE = "tls.server.mode", "tls.enable", "tls.config.file"
PROCESS_KEYS = (SERVER_MODE, CLIENT_ENABLE, CONFIG_FILE)  # not read from the file, as at Apache's
NEED_CLIENT_AUTH = "tls.server.need.client.auth"
PROPERTY_NAMES = frozenset({*PATHS, *TEXTS, *SWITCHES, *PROCESS_KEYS, NEED_CLIENT_AUTH})
CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
WORDS = {
    SERVER_MODE: tuple(mode.name.lower() for mode in TlsMode),
    NEED_CLIENT_AUTH: tuple(CLIENT_AUTH),
}
PROTOCOLS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


def tls_config(properties: Mapping[str, str], base: TlsConfig | None = None) -> TlsConfig:
    """*base* (the defaults) changed by RocketMQ's properties; keys that are not TLS's are not looked at.

    Raises:
        ConfigError: a value that its key does not take.
    """
    changes = from_properties(properties)
    if SERVER_MODE in properties:
        changes["server_mode"] = TlsMode[word_of(SERVER_MODE, properties[SERVER_MODE]).upper()]
    if CLIENT_ENABLE in properties:
        changes["client_enable"] = switch_of(CLIENT_ENABLE, properties[CLIENT_ENABLE])
    if CONFIG_FILE in properties:
        changes["config_file"] = path_of(properties[CONFIG_FILE])
    return dataclasses.replace(base or TlsConfig(), **changes)  # type: ignore[arg-type]


def with_file(config: TlsConfig) -> TlsConfig:
    """*config* changed by its `tls.config.file`, if there is one.

    Raises:
        ConfigError: it cannot be read, or has a value that its key does not take.
    """
    if config.config_file is None or not config.config_file.is_file():
        return config
    properties = {item.key: item.value for item in read_properties(config.config_file)}
    return dataclasses.replace(config, **from_properties(properties))  # type: ignore[arg-type]


def read_properties(path: Path) -> list[java_properties.Property]:
    """Every property of `tls.config.file`.

    Raises:
        ConfigError: it cannot be read or is not what Java's properties look like.
    """
    try:
        return java_properties.parse(read_text(path)[0])
    except OSError as error:
        raise ConfigError(f"{CONFIG_FILE} {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{CONFIG_FILE} {path}: {error}") from error


def from_properties(properties: Mapping[str, str]) -> dict[str, object]:
    """Attributes of TlsConfig by RocketMQ's names, without the process's own."""
    changes: dict[str, object] = {}
    changes |= {name: path_of(properties[key]) for key, name in PATHS.items() if key in properties}
    changes |= {name: properties[key].strip() or None for key, name in TEXTS.items() if key in properties}
    changes |= {name: switch_of(key, properties[key]) for key, name in SWITCHES.items() if key in properties}
    if NEED_CLIENT_AUTH in properties:
        word = properties[NEED_CLIENT_AUTH].strip() or "none"
        changes["server_need_client_auth"] = word_of(NEED_CLIENT_AUTH, word)
    return changes


def check_property(key: str, text: str, origin: str) -> None:
    """Hold one `tls.` property against what its key takes.

    Raises:
        ConfigError: says where it stands, and what it can be.
    """
    try:
        tls_config({key: text})
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None


def check_tls_file(properties: Mapping[str, str], *, strict: bool) -> list[str]:
    """What there is to say about `tls.config.file`, which is read at the start.

    Raises:
        ConfigError: a value that its key does not take, or, if *strict*, a key without effect there.
    """
    path = tls_config(properties).config_file
    if path is None:
        return []
    if not path.is_file():
        return [f"{CONFIG_FILE}={path} has no effect: there is no such file"] if CONFIG_FILE in properties else []
    unknown: list[str] = []
    for item in read_properties(path):
        origin = f"{path}:{item.line}"
        if item.key in PROCESS_KEYS:
            unknown.append(f"{origin}: {item.key} has no effect in this file; set it where {CONFIG_FILE} can be set")
        elif item.key in PROPERTY_NAMES:
            check_property(item.key, item.value, origin)
        else:
            close = difflib.get_close_matches(item.key, PROPERTY_NAMES, n=1)
            hint = f"did you mean {close[0]}?" if close else "no key looks like it; remove it"
            unknown.append(f"{origin}: unknown key {item.key}: {hint}")
    if unknown and strict:
        raise ConfigError("; ".join(unknown) + " (strictConfig=true refuses keys without effect)")
    return unknown


def switch_of(key: str, text: str) -> bool:
    """true or false.

    Raises:
        ConfigError: it is neither.
    """
    try:
        return java_properties.parse_bool(text)
    except ValueError:
        raise ConfigError(f"{key} is {text.strip()!r}; it can be true or false") from None


def word_of(key: str, text: str) -> str:
    """One of the words that *key* takes, in lower case.

    Raises:
        ConfigError: it is none of them.
    """
    word = text.strip().lower()
    if word not in WORDS[key]:
        *others, last = WORDS[key]
        raise ConfigError(f"{key} is {text.strip()!r}; it can be {', '.join(others)} or {last}")
    return word


def path_of(text: str) -> Path | None:
    """A path, None for nothing."""
    return Path(text.strip()) if text.strip() else None


def watched_files(config: TlsConfig) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The server's files that are reloaded: (certificate and key, which change together; trust)."""
    if config.test_mode_enable:
        return (), ()
    pair = tuple(path for path in (config.server_cert_path, config.server_key_path) if path is not None)
    trust = (config.server_trust_cert_path,) if config.server_trust_cert_path is not None else ()
    return pair, trust


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """What a server's handshakes are made with.

    Raises:
        ConfigError: files that are missing or no certificate, or a word that is none; the text names them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if config.test_mode_enable:
        load_self_signed(context)
    else:
        load_chain(context, "tls.server", config.server_cert_path, config.server_key_path, config.server_key_password)
        if config.server_auth_client:
            load_trust(context, "tls.server", config.server_trust_cert_path)
            context.verify_mode = CLIENT_AUTH[word_of(NEED_CLIENT_AUTH, config.server_need_client_auth)]
    restrict(context, config)
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """What a client's handshakes are made with. As at Apache's, the host's name is not compared.

    Raises:
        ConfigError: as server_context.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if not config.test_mode_enable:
        if config.client_auth_server:
            load_trust(context, "tls.client", config.client_trust_cert_path)
            context.verify_mode = ssl.CERT_REQUIRED
        if config.client_cert_path is not None:
            load_chain(
                context, "tls.client", config.client_cert_path, config.client_key_path, config.client_key_password
            )
    restrict(context, config)
    return context


def load_chain(
    context: ssl.SSLContext, side: str, certificate: Path | None, key: Path | None, password: str | None
) -> None:
    """Give *context* its own certificate."""
    if certificate is None or key is None:
        raise ConfigError(f"{side}.certPath or {side}.keyPath is not given, and tls.test.mode.enable is false")
    try:
        # Without a password an encrypted key would be asked for at the terminal.
        context.load_cert_chain(certificate, key, password or "")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{side}.certPath {certificate} with {side}.keyPath {key}: {error}") from error


def load_trust(context: ssl.SSLContext, side: str, trust: Path | None) -> None:
    """Give *context* what it verifies others by: a file, or what the system trusts."""
    if trust is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(trust)
    except OSError as error:
        raise ConfigError(f"{side}.trustCertPath {trust}: {error}") from error


def restrict(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Apply tls.ciphers and tls.protocols."""
    if config.ciphers:
        names = [openssl_name(name.strip()) for name in config.ciphers.split(",")]
        try:
            context.set_ciphers(":".join(name for name in names if name))
        except ssl.SSLError as error:
            raise ConfigError(f"tls.ciphers is {config.ciphers!r}: {error}") from error
    if config.protocols:
        names = [name.strip() for name in config.protocols.split(",")]
        unknown = [name for name in names if name not in PROTOCOLS]
        if unknown:
            raise ConfigError(f"tls.protocols has {', '.join(unknown)}; known are {', '.join(PROTOCOLS)}")
        context.minimum_version = min(PROTOCOLS[name] for name in names)
        context.maximum_version = max(PROTOCOLS[name] for name in names)


def openssl_name(name: str) -> str:
    """A cipher suite's name as OpenSSL has it: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    if not name.startswith("TLS_"):
        return name
    if "_WITH_" not in name:
        return ""  # a suite of TLS 1.3, where OpenSSL has all of them on
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC_", "_")
    prefix = "" if exchange == "RSA" else exchange + "_"
    return (prefix + cipher).replace("_", "-")


def check_self_signed() -> None:
    """Whether a certificate can be made.

    Raises:
        ConfigError: says what is missing.
    """
    if importlib.util.find_spec("cryptography") is None:
        raise ConfigError(
            "tls.test.mode.enable needs the package cryptography to make a certificate (pip install pymq[tls]); "
            "or give tls.server.certPath and tls.server.keyPath with tls.test.mode.enable=false"
        )


def load_self_signed(context: ssl.SSLContext) -> None:
    """A certificate of our own making, for test mode: encrypted, but proving nothing."""
    check_self_signed()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # the ssl module reads chains from files only
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
