"""`python manage.py runjobs`: runs the jobs until the process is told to end."""

import signal
import threading

from django.core.management.base import BaseCommand

from shop.jobs import runner


class Command(BaseCommand):
    """Runs the jobs of the shop."""

    help = "Run the jobs of the shop until SIGTERM or Ctrl-C."

    def handle(self, *args: object, **options: object) -> None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        with runner:
            for job in runner.wait(runner.jobs()):
                self.stdout.write(f"{job.identity}: next start {job.next_start_at}")
            ended.wait()
