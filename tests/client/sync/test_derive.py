"""A sync class derived from a small async one: results, errors, threads, interrupts, forks, the end of the program."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import pytest

from firearrow.client.errors import ClientError, ClosedError
from firearrow.client.lifecycle import AsyncClient
from firearrow.client.sync.derive import SyncClient, as_future, blocking, on_loop, same_constructor
from firearrow.client.sync.loop_thread import background

WHO = contextvars.ContextVar("WHO", default="nobody")


class AsyncEcho(AsyncClient):
    """An async client that needs no network."""

    def __init__(self, name: str, *, times: int = 1) -> None:
        self.name, self.times = name, times
        self.events: list[str] = []
        self.pid = 0

    async def start(self) -> None:
        self.pid = os.getpid()
        self.events.append("start")

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.events.append("close")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.events.append(kind.__name__)
        await self.close()

    async def say(self, word: str, *, loud: bool = False) -> str:
        """Says it."""
        await asyncio.sleep(0)
        return (word.upper() if loud else word) * self.times

    async def thread(self) -> str:
        return threading.current_thread().name

    async def who(self) -> str:
        return WHO.get()

    async def fail(self, error: BaseException) -> None:
        await asyncio.sleep(0)
        raise error

    async def wait_for_ever(self) -> None:
        self.events.append("waiting")
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("given up")

    async def run(self, function: Callable[[], str]) -> str:
        return function()

    async def process(self) -> int:
        return self.pid

    def noted(self) -> list[str]:
        return self.events

    def running(self) -> bool:
        return asyncio.get_running_loop().is_running()

    def say_soon(self, word: str) -> asyncio.Future[str]:
        if not word:
            raise ValueError("nothing to say")
        return asyncio.ensure_future(self.say(word))

    def never(self) -> asyncio.Future[str]:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return future


class Echo(SyncClient[AsyncEcho]):
    @same_constructor(AsyncEcho)
    def __init__(self, make: Callable[[], AsyncEcho]) -> None:
        super().__init__(make)

    say = blocking(AsyncEcho.say)
    thread = blocking(AsyncEcho.thread)
    who = blocking(AsyncEcho.who)
    fail = blocking(AsyncEcho.fail)
    wait_for_ever = blocking(AsyncEcho.wait_for_ever)
    run = blocking(AsyncEcho.run)
    process = blocking(AsyncEcho.process)
    noted = on_loop(AsyncEcho.noted)
    running = on_loop(AsyncEcho.running)
    say_soon = as_future(AsyncEcho.say_soon)
    never = as_future(AsyncEcho.never)


class Listening(SyncClient[AsyncEcho]):
    remade_after_fork = False

    @same_constructor(AsyncEcho)
    def __init__(self, make: Callable[[], AsyncEcho]) -> None:
        super().__init__(make)

    say = blocking(AsyncEcho.say)


def test_a_coroutine_function_becomes_a_method_that_waits() -> None:
    with Echo("e", times=2) as echo:
        assert echo.say("ab") == "abab"
        assert echo.say("ab", loud=True) == "ABAB"
        assert Echo.say(echo, "c") == "cc"
        assert echo.noted() == ["start"]
    assert echo.noted() == ["start", "close"]


def test_leaving_by_an_error_is_told_to_the_async_class() -> None:
    echo = Echo("e")
    with pytest.raises(KeyError), echo:
        raise KeyError
    assert echo.noted() == ["start", "KeyError", "close"]


def test_parameters_and_texts_are_those_of_the_async_class() -> None:
    echo = Echo("e")

    assert list(inspect.signature(Echo).parameters) == ["name", "times"]
    assert list(inspect.signature(echo.say).parameters) == ["self", "word", "loud"]
    assert echo.say.__doc__ == Echo.say.__doc__ == "Says it."
    with pytest.raises(TypeError, match="times_"):
        Echo("e", times_=1)  # type: ignore[call-arg]


def test_all_clients_share_one_thread_which_is_not_the_callers() -> None:
    names = {Echo("a").thread(), Echo("b").thread()}

    assert names == {"firearrow-client"}
    assert [thread.name for thread in threading.enumerate()].count("firearrow-client") == 1


def test_errors_arrive_where_the_call_was_made() -> None:
    echo = Echo("e")

    with pytest.raises(KeyError, match="lost"):
        echo.fail(KeyError("lost"))
    with pytest.raises(SystemExit):
        echo.fail(SystemExit(3))
    with pytest.raises(ClosedError):
        echo.fail(asyncio.CancelledError())
    assert echo.say("still here") == "still here"


def test_many_threads_at_once() -> None:
    echo = Echo("e")
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda n: echo.say(str(n)), range(400)))
    assert said == [str(n) for n in range(400)]


def test_context_variables_go_along() -> None:
    token = WHO.set("me")
    try:
        assert Echo("e").who() == "me"
    finally:
        WHO.reset(token)


def test_a_plain_method_runs_on_the_loop() -> None:
    assert Echo("e").running() is True


def test_futures_come_at_once_and_in_order() -> None:
    echo = Echo("e")
    futures = [echo.say_soon(str(n)) for n in range(100)]

    assert [future.result(60) for future in futures] == [str(n) for n in range(100)]
    with pytest.raises(ValueError, match="nothing to say"):
        echo.say_soon("").result(60)
    with pytest.raises(ClosedError):
        echo.never().result(60)


def test_waiting_for_the_loop_on_the_loop_is_refused() -> None:
    echo = Echo("e")
    with pytest.raises(ClientError, match="would deadlock"):
        echo.run(lambda: echo.say("x"))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that was started in the background may ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_wait_and_cancels_what_was_waited_for() -> None:
    echo = Echo("e")
    events = echo.noted()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        if "waiting" in events:
            signal.pthread_kill(main, signal.SIGINT)
        else:
            background().loop.call_later(0.01, interrupt)

    background().submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        echo.wait_for_ever()
    assert echo.say("works") == "works"  # what is submitted later runs later: the wait has been cancelled
    assert events == ["waiting", "given up"]


def in_child(function: Callable[[], str]) -> str:
    """Return the result of a function in a forked process, or the text of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = function()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_client_is_recreated_after_a_fork_and_the_parent_continues() -> None:
    with Echo("e", times=2) as echo:
        parent = echo.process()

        def child() -> str:
            told = [echo.say("x"), str(echo.process() == os.getpid()), threading.active_count()]
            echo.close()
            return " ".join(map(str, told))

        assert in_child(child) == "xx True 2"
        assert echo.process() == parent == os.getpid()
        assert echo.noted() == ["start"]


def test_client_unused_in_the_child_is_not_closed_there() -> None:
    with Echo("e") as echo:

        def child() -> str:
            echo.close()
            return "nothing happened"

        assert in_child(child) == "nothing happened"
        assert echo.say("x") == "x"


def test_consumers_are_not_recreated_after_a_fork() -> None:
    with Listening("l") as listening:
        answer = in_child(lambda: listening.say("x"))

    assert answer.startswith("ClosedError: this Listening was created before the fork")


def program(text: str) -> subprocess.CompletedProcess[str]:
    source = "from tests.client.sync.test_derive import *\n" + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)


def test_a_program_may_end_with_clients_open() -> None:
    ended = program(
        """
        class Told(AsyncEcho):
            async def close(self):
                await asyncio.sleep(0.01)
                print("closed")

        class Sync(SyncClient[Told]):
            @same_constructor(Told)
            def __init__(self, make):
                super().__init__(make)
            say = blocking(Told.say)

        one, two, three = Sync("a"), Sync("b"), Sync("c")
        one.start(), two.start(), three.start()
        two.close()
        print(one.say("said"))
        """
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\nsaid\nclosed\nclosed\n", "")


def test_a_program_that_is_interrupted_ends() -> None:
    ended = program(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for programs in the background
        echo = Echo("e")
        echo.start()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with echo:
            echo.wait_for_ever()
        """
    )
    assert ended.returncode in (130, -signal.SIGINT)
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
