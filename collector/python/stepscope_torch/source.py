"""Sources of knowledge about a program, each of which may fail on its own."""


class Source:
    """Something that is found out about the program, by hooks and looks of ours.

    What goes wrong in one of them ends that one alone, and the recording says which and why.
    """

    def __init__(self, say_why):
        self._say_why = say_why
        self.is_on = True

    def run(self, action, *arguments):
        """Does something for it; nothing once it has failed."""
        if not self.is_on:
            return None
        try:
            return action(*arguments)
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, why):
        """Ends it. Its hooks stay, and do nothing."""
        self.is_on = False
        try:
            self._say_why(why)
        except Exception:
            # Then nobody hears of it, and the program goes on all the same.
            pass
