"""Certificates for the TLS tests, made on the spot."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Authority:
    """Somebody who signs."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str) -> Authority:
        """A certificate that signs itself and others."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = build(name, key.public_key(), name, key, authority=True)
        return cls(key, certificate)

    def write(self, path: Path) -> Path:
        """What others trust."""
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def issue(self, name: str, certificate_path: Path, key_path: Path, password: bytes = b"") -> None:
        """A certificate and its key, perhaps encrypted, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = self.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
        certificate = build(name, key.public_key(), str(subject), self.key, authority=False)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password)
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )


def build(
    name: str, public: ec.EllipticCurvePublicKey, issuer: str, signer: ec.EllipticCurvePrivateKey, *, authority: bool
) -> x509.Certificate:
    """A certificate of *name*, signed."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
