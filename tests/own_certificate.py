"""A certificate for this machine, signed by itself, for tests of TLS."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def own_certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server of 127.0.0.1 speaks TLS with, and the PEM file of who has signed its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "buckets tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    ca_file, both = folder / "ca.pem", folder / "server.pem"
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    ca_file.write_bytes(pem)
    form = serialization.PrivateFormat.PKCS8
    both.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()) + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, ca_file
