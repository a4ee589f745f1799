"""A SuperLink with TLS and SuperNode authentication: a registered node is accepted, all others are rejected."""

from __future__ import annotations

import datetime
import ipaddress
import json

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from processes import Flower


def private_key(path):
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return key


def node_key(path):
    """A key pair like that of `ssh-keygen -t ecdsa -b 384`."""
    key = ec.generate_private_key(ec.SECP384R1())
    openssh = serialization.PrivateFormat.OpenSSH
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption()))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)
    return path


def certificates(folder):
    """A certificate authority, and the server's certificate for 127.0.0.1."""
    now = datetime.datetime.now(datetime.UTC)
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    ca_key, server_key = private_key(folder / "ca.key"), private_key(folder / "server.key")

    def certificate(subject, public, *extensions):
        end = now + datetime.timedelta(days=1)
        builder = x509.CertificateBuilder(authority, subject, public, x509.random_serial_number(), now, end)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (folder / "ca.crt").write_bytes(
        certificate(authority, ca_key.public_key(), (x509.BasicConstraints(ca=True, path_length=None), True))
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    (folder / "server.pem").write_bytes(certificate(server, server_key.public_key(), (names, False)))


def test_a_registered_node_is_let_in_and_any_other_rejected(tmp_path):
    certificates(tmp_path)
    known, unknown = node_key(tmp_path / "known"), node_key(tmp_path / "unknown")
    with Flower(tmp_path, tls=True) as flower:
        flower.superlink(
            *("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"),
            *("--enable-supernode-auth", "--database", "state.db"),
        )
        register = flower.start("register", "flwr", "supernode", "register", "known.pub", "test")
        flower.wait(lambda: register.poll() is not None, 60, "the registration did not end")
        assert register.returncode == 0, flower.log("register")
        tls = ("--root-certificates", "ca.crt")
        unregistered = flower.supernode(1, 4, *tls, "--auth-supernode-private-key", str(unknown))
        without_key = flower.supernode(2, 4, *tls)
        flower.supernode(3, 4, "--insecure")  # plain text
        flower.supernode(0, 4, *tls, "--auth-supernode-private-key", str(known))

        def nodes():
            (tmp_path / "list.log").unlink(missing_ok=True)
            shown = flower.start("list", "flwr", "supernode", "list", "test", "--format", "json")
            flower.wait(lambda: shown.poll() is not None, 60, "the list did not end")
            return [node["status"] for node in json.loads(flower.log("list"))["nodes"]]

        for process, name, reason in (
            (unregistered, "node-1", "Failed to activate SuperNode"),
            (without_key, "node-2", "All SuperNodes must be registered"),
        ):
            flower.wait(lambda process=process: process.poll() is not None, 120, f"{name} was not rejected")
            assert process.returncode != 0
            assert reason in flower.log(name)
        flower.wait(lambda: "Connection attempt failed" in flower.log("node-3"), 120, "plain text was not rejected")
        flower.wait(lambda: nodes() == ["online"], 120, "the registered node is not the only one online")
