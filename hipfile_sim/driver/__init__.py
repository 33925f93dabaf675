"""The hipFile library, modelled. `Driver` has every public function of ``hipfile.h``."""
