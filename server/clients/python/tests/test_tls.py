"""https with a certificate authority of one's own."""

import ssl
import subprocess
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from saggar_client import Client, ConnectionFailed


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


class Server(HTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that refuses the certificate is part of the test."""


class Tls(unittest.TestCase):
    def test_server_is_trusted_by_the_given_file_only(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
            options = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
            names = ["-addext", "subjectAltName=IP:127.0.0.1"]
            command = ["openssl", "req", "-x509", *options, *names, "-keyout", str(key), "-out", str(certificate)]
            subprocess.run(command, check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server = Server(("127.0.0.1", 0), Handler)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            url = f"https://127.0.0.1:{server.server_port}"
            try:
                with Client(url, "k", ca_file=str(certificate)) as client:
                    self.assertEqual(client.list_agents(), {})
                with Client(url, "k", attempts=1) as client, self.assertRaisesRegex(ConnectionFailed, "CERTIFICATE"):
                    client.list_agents()
            finally:
                server.shutdown()
                thread.join()
                server.server_close()
