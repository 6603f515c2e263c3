"""Dictionaries of requests and responses: several values per key, keys without case, values as attributes."""

from collections.abc import MutableMapping


class MultiDict(MutableMapping):
    """A dictionary that keeps every value of a key and shows the newest."""

    def __init__(self, *args, **more):
        self.dict = {key: [value] for key, value in dict(*args, **more).items()}

    def __len__(self):
        return len(self.dict)

    def __iter__(self):
        return iter(self.dict)

    def __contains__(self, key):
        return key in self.dict

    def __delitem__(self, key):
        del self.dict[key]

    def __getitem__(self, key):
        return self.dict[key][-1]

    def __setitem__(self, key, value):
        self.append(key, value)

    def __repr__(self):
        return "%s(%r)" % (type(self).__name__, self.dict)

    def append(self, key, value):
        self.dict.setdefault(key, []).append(value)

    def replace(self, key, value):
        self.dict[key] = [value]

    def allitems(self):
        return [(key, value) for key, values in self.dict.items() for value in values]

    iterallitems = allitems

    def getall(self, key):
        return self.dict.get(key) or []

    getlist = getall

    def get(self, key, default=None, index=-1, type=None):
        """One value of a key, converted by `type`; the default when there is none or it cannot be converted."""
        try:
            value = self.dict[key][index]
            return type(value) if type else value
        except (KeyError, IndexError, ValueError, TypeError):
            return default

    getone = get


class FormsDict(MultiDict):
    """Form and query values, also as attributes; an attribute that is missing is an empty text."""

    input_encoding = "utf8"
    recode_unicode = True

    def decode(self, encoding=None):
        return self

    def getunicode(self, name, default=None, encoding=None):
        return self.get(name, default)

    def __getattr__(self, name, default=""):
        if name.startswith("__") and name.endswith("__") or name == "dict":
            raise AttributeError(name)
        return self.get(name, default)


def _name(key):
    text = key.decode("latin-1") if isinstance(key, bytes) else str(key)
    if any(character in text for character in "\r\n\0"):
        raise ValueError("Header names must not contain control characters: %r" % text)
    return text.title().replace("_", "-")


def _value(value):
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if any(character in text for character in "\r\n\0"):
        raise ValueError("Header value must not contain control characters: %r" % text)
    return text


class HeaderDict(MultiDict):
    """Headers: keys without case, and a new value takes the place of the old one."""

    def __init__(self, *args, **more):
        super().__init__()
        self.update(*args, **more)

    def __contains__(self, key):
        return _name(key) in self.dict

    def __delitem__(self, key):
        del self.dict[_name(key)]

    def __getitem__(self, key):
        return self.dict[_name(key)][-1]

    def __setitem__(self, key, value):
        self.replace(key, value)

    def append(self, key, value):
        self.dict.setdefault(_name(key), []).append(_value(value))

    def replace(self, key, value):
        self.dict[_name(key)] = [_value(value)]

    def getall(self, key):
        return self.dict.get(_name(key)) or []

    getlist = getall

    def get(self, key, default=None, index=-1, type=None):
        return super().get(_name(key), default, index, type)

    getone = get

    def filter(self, names):
        for name in names:
            self.dict.pop(_name(name), None)
