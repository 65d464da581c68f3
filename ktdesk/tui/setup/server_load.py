"""The last step: the app's server loads what was set up. It knows no screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ktdesk.guided_setup import GuidedSetup
    from ktdesk.model_link import LinkState, ModelLink

ChangeLink = Callable[[Callable[["ModelLink"], "LinkState"]], object]


class ServerLoad:
    """change_link: does something with the link, elsewhere."""

    def __init__(self, change_link: ChangeLink) -> None:
        self._change_link = change_link
        self._path = ""
        """Of what it loads; nothing where it does not."""
        self._guards_memory = True

    def begin(self, guided: GuidedSetup) -> None:
        """guided: at its end."""
        from ktdesk.options import EngineOptions

        path, plan, wishes = guided.path, guided.plan, guided.choice.wishes
        assert path is not None
        assert plan is not None
        options = EngineOptions(
            context=plan.context,
            threads=wishes.num_threads,
            compute=wishes.compute,
            cache_type=wishes.cache_type,
            **wishes.accelerator_options(uses_card=plan.uses_card),
        )
        guards = self._guards_memory and not guided.choice.insists
        self._path = str(path)
        self._change_link(lambda link: link.start(path, options, guards_memory=guards))

    def insist(self) -> None:
        """From now on, whether it fits or not."""
        self._guards_memory = False

    def is_about(self, state: LinkState) -> bool:
        """Whether that is how it goes."""
        return bool(self._path) and state.path == self._path

    def end(self) -> None:
        """It is ready, or somebody else's."""
        self._path = ""

    def cancel(self) -> bool:
        """False where nothing was loaded."""
        if not self._path:
            return False
        self.end()
        self._change_link(lambda link: link.leave())
        return True
