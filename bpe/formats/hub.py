"""a Hub id -> one file of it, and whatever goes wrong with the Hub -> one sentence.

Blind spot: it does not know what the files are for.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

HUB_SECONDS = 10  # to wait for the Hub's first answer; huggingface_hub may wait for minutes


class SourceError(RuntimeError):
    """A model could not be had; the message is one sentence for the user."""


class HubUnreachable(SourceError):
    """No answer from the Hub: no network, or told to stay offline."""


def fetch(repository: str, file: str, beside: Collection[str] = ()) -> Path:
    """One file of a repository: out of the Hub's cache if it is there, else downloaded.

    beside: files that come into the same folder where the repository has them. They come first, so
    where the file is, they are as well.
    """
    import huggingface_hub as hub

    with quiet_hub(repository):
        cached = hub.try_to_load_from_cache(repository, file)
        if isinstance(cached, str):
            return Path(cached)
        # Answers soon, or not at all
        answer = hub.HfApi().model_info(repository, timeout=HUB_SECONDS)
        names = [sibling.rfilename for sibling in answer.siblings or ()]
        for name in [name for name in beside if name in names]:
            hub.hf_hub_download(repository, name)
        return Path(hub.hf_hub_download(repository, file))


@contextmanager
def quiet_hub(name: str) -> Iterator[None]:
    """Inside, the Hub's client writes no log lines, and its errors become a SourceError."""
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # of each retry; our own sentence says how it ended
    with hub_errors(name), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a disk that may become full; if it does, we say so
        yield


@contextmanager
def hub_errors(model: str) -> Iterator[None]:
    """Whatever goes wrong inside becomes a SourceError of one sentence."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        raise _hub_error(model, error) from error


def _hub_error(model: str, error: Exception) -> SourceError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return SourceError(f"{model} is gated: accept its terms on the Hub, then set HF_TOKEN")
    if isinstance(error, errors.RepositoryNotFoundError):
        from huggingface_hub import get_token

        why = "your token can't read it" if get_token() else "HF_TOKEN is not set"
        return SourceError(
            f"{model} is no local path, and the Hub has no such model either, or it is private and "
            + why
        )
    if isinstance(error, errors.HFValidationError):
        return SourceError(f"{model} is neither a local path nor a valid Hub id")
    if is_disk_full(error):
        return disk_full(model)
    if _is_network(error):
        offline = " (HF_HUB_OFFLINE is set)" if _is_offline() else ""
        return HubUnreachable(
            f"{model} is neither a local path nor whole in the Hub's cache, and the Hub can't be "
            f"reached{offline}; check the network, or pass a local directory or .gguf file"
        )
    return SourceError(f"{model} could not be fetched from the Hub: {first_line(error)}")


_HTTP_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")
_HTTP_TIMEOUTS = (408, 429)  # Request Timeout, Too Many Requests: no answer yet


def _is_network(error: Exception) -> bool:
    """Whether the Hub gave no answer, or an answer about itself rather than about the request."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError | TimeoutError):
        return True
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return status >= 500 or status in _HTTP_TIMEOUTS
    library = type(error).__module__.split(".")[0]  # which one depends on huggingface_hub's version
    return library in _HTTP_LIBRARIES


def _is_offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def is_disk_full(error: BaseException | None) -> bool:
    """Whether this error, or one that it came from, is about space on the disk."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if os.strerror(errno.ENOSPC) in str(error):  # hf_xet and pip only have the words
            return True
        error = error.__cause__ or error.__context__
    return False


def disk_full(name: str) -> SourceError:
    return SourceError(
        f"the disk is full, so {name} could not be stored; free some space and run the same "
        "command again"
    )


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
