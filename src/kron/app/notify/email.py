"""E-mail: messages handed to an SMTP server, each in a thread of its own pool."""

import asyncio
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.utils import format_datetime

from kron.app.notify.channel import EmailChannel
from kron.app.notify.message import Composed
from kron.core.errors import KronError
from kron.core.redaction import replace_secrets
from kron.launchers.delivery import DeliveryResult
from kron.ports import Clock

# How long each step of a session may take, in seconds.
SMTP_S = 10.0
# Sessions at once.
MAX_SESSIONS = 20
CLEAR_TEXT = "offers no TLS, and a password is not sent in clear text"


class EmailSender:
    """Sends e-mail without blocking the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads = ThreadPoolExecutor(MAX_SESSIONS, "kron-email")

    async def send(self, channel: EmailChannel, message: Composed) -> DeliveryResult:
        """Send a message; what the server refuses for good is not retried."""
        email = self._email(channel, message)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _deliver, channel, email)

    def _email(self, channel: EmailChannel, message: Composed) -> EmailMessage:
        email = EmailMessage()
        email["Subject"] = f"[Kron] {message.subject}"
        email["From"], email["To"] = channel.sender, ", ".join(channel.to)
        email["Date"] = format_datetime(self._clock.now())
        email["Message-ID"] = f"<{message.id}@kron.invalid>"
        email["Kron-Notification-Id"] = message.id
        email["Auto-Submitted"] = "auto-generated"
        email.set_content(message.text)
        return email

    def close(self) -> None:
        """Start no more sessions."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _deliver(channel: EmailChannel, email: EmailMessage) -> DeliveryResult:
    scheme, host, port = channel.address
    where, password = f"{host}:{port}", None
    try:
        password = channel.login()
        context = ssl.create_default_context(cafile=channel.authorities)
        with _session(scheme, host, port, context) as server:
            is_secret = scheme == "smtps" or _start_tls(server, context)
            if channel.user is not None and password is not None:
                if not is_secret:
                    return DeliveryResult(f"{where} {CLEAR_TEXT}")
                server.login(channel.user, password)
            refused = server.send_message(email)
    except smtplib.SMTPResponseException as cause:
        code = cause.smtp_code
        text = (
            cause.smtp_error.decode(errors="replace") if isinstance(cause.smtp_error, bytes) else str(cause)
        )
        error = replace_secrets(f"{where} answered {code} {text}", [password or ""])
        return DeliveryResult(error, retry=not 500 <= code < 600)
    except smtplib.SMTPRecipientsRefused as cause:
        codes = [code for code, _ in cause.recipients.values()]
        error = f"{where} refused every recipient: {', '.join(cause.recipients)}"
        return DeliveryResult(error, retry=any(code < 500 for code in codes))
    except (OSError, smtplib.SMTPException) as cause:
        error = f"{where} cannot be used: {type(cause).__name__}: {cause}"
        return DeliveryResult(replace_secrets(error, [password or ""]), retry=True)
    except KronError as cause:
        return DeliveryResult(str(cause), retry=True)
    if refused:
        return DeliveryResult(f"{where} refused some recipients: {', '.join(refused)}")
    return DeliveryResult()


def _session(scheme: str, host: str, port: int, context: ssl.SSLContext) -> smtplib.SMTP:
    if scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=SMTP_S, context=context)
    return smtplib.SMTP(host, port, timeout=SMTP_S)


def _start_tls(server: smtplib.SMTP, context: ssl.SSLContext) -> bool:
    """Encrypt the session if the server offers it, and say whether it is encrypted."""
    server.ehlo_or_helo_if_needed()
    if not server.has_extn("starttls"):
        return False
    server.starttls(context=context)
    server.ehlo()
    return True
