"""
Let connections through gates, each of which can be held or broken: a separate program.

Its one argument is a JSON file: the address of its own door, and for each gate the address where
it listens and the one that it leads to. A line of JSON through the door lists the gates to hold
and to break; all others are open. It may also list gates that lead elsewhere from now on: existing
connections stay. Each line is answered with a line.
"""

import asyncio
import json
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

_CHUNK = 65_536
# Close at once, without sending the rest: the other side gets a reset.
_LINGER = struct.pack("ii", 1, 0)


class NetworkGate:
    """The way from one party to another; its connections share its state."""

    def __init__(self) -> None:
        self.leads: tuple[str, int] | None = None
        """Target of new connections, in place of the one in their route."""
        self.rate: float | None = None
        """Bytes a second through a connection each way; None: unlimited."""
        self._open = asyncio.Event()
        self._open.set()
        self._broken = False
        self._writers: set[asyncio.StreamWriter] = set()

    def hold(self) -> None:
        """Let nothing through; data sent meanwhile comes through when the gate opens."""
        self._broken = False
        self._open.clear()

    def open(self) -> None:
        self._broken = False
        self._open.set()

    def shatter(self) -> None:
        """Reset existing connections, and all new ones."""
        self._broken = True
        self._open.set()
        for writer in self._writers:
            _reset(writer)

    async def serve(self, here: tuple[str, int], there: tuple[str, int]) -> None:
        async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._pass(reader, writer, there)

        await asyncio.start_server(come, *here, backlog=256)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: tuple[str, int],
    ) -> None:
        if self._broken:
            _reset(writer)
            return
        # While nothing comes through, the client does not learn either whether anybody is there.
        await self._open.wait()
        try:
            reader_there, writer_there = await asyncio.open_connection(*(self.leads or there))
        except OSError:
            _reset(writer)
            return
        pair = {writer, writer_there}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, writer_there))
                both.create_task(self._forward(reader_there, writer))
        except* OSError:
            pass  # one side is gone, and so is the connection
        finally:
            self._writers -= pair
            for each in pair:
                _reset(each)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._open.wait()
            if self.rate is not None:
                await asyncio.sleep(len(data) / self.rate)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # nobody here closes one direction alone


def _reset(writer: asyncio.StreamWriter) -> None:
    transport = writer.transport
    if (own := transport.get_extra_info("socket")) is not None and not transport.is_closing():
        with suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
    transport.abort()


async def keep(door: tuple[str, int], routes: list[dict[str, object]]) -> None:
    """Run the gates of `routes` as the lines through `door` say, without end."""
    gates: dict[str, NetworkGate] = {}
    for route in routes:
        gate = gates.setdefault(str(route["gate"]), NetworkGate())
        await gate.serve(_address(route["here"]), _address(route["there"]))

    async def obey(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked = json.loads(line)
            for name, place in asked.get("leads", {}).items():
                gates[name].leads = _address(place)
            for name, gate in gates.items():
                gate.rate = asked.get("slow", {}).get(name)
                if name in asked["broken"]:
                    gate.shatter()
                elif name in asked["held"]:
                    gate.hold()
                else:
                    gate.open()
            writer.write(b"done\n")
        writer.close()

    server = await asyncio.start_server(obey, *door)
    await server.serve_forever()


def _address(given: object) -> tuple[str, int]:
    host, _, port = str(given).rpartition(":")
    return host, int(port)


def main() -> None:
    """Run the gates that the file in the argument names."""
    config = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(keep(_address(config["door"]), config["routes"]))


if __name__ == "__main__":
    main()
