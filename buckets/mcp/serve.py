"""Serves an assistant on standard input and output until it goes away."""

import os
import signal
import sys
from pathlib import Path
from typing import Never

import anyio

from buckets.config.job import load_job
from buckets.exit_codes import DONE, INTERRUPTED
from buckets.mcp.server import AssistantServer, server_of
from buckets.questions.asked_job import AskedJob
from buckets.questions.long_questions import Questions


def serve(conf: Path, person: str, is_read_only: bool) -> None:
    """Serve an assistant; the process ends when its standard input closes, or a signal interrupts it.

    Args:
        conf: the configuration of the job.
        person: whose assistant it is.
        is_read_only: whether no drafts may be proposed.

    Raises:
        BucketsError: the configuration is not valid.
    """
    asked, questions = AskedJob(conf, load_job(conf)), Questions()
    anyio.run(_serve, server_of(asked, questions, person, is_read_only), questions)


async def _serve(server: AssistantServer, questions: Questions) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_at_signal, questions)
        await server.run_stdio_async()
        _end(questions, DONE)


async def _end_at_signal(questions: Questions) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            _end(questions, INTERRUPTED)


def _end(questions: Questions, code: int) -> Never:
    """End the process at once.

    Python would wait for threads that read files or the standard input, and nobody can call these off.
    """
    questions.close()
    sys.stderr.flush()
    os._exit(code)
