"""A script of ParaView's Catalyst (version 2.0, as the GUI exports them): the picture `surface` of
gray-scott-pipeline.yaml, drawn by ParaView.

    penstock analyze gray-scott paraview_surface.py --paraview
"""

from paraview import catalyst
from paraview.simple import (
    ColorBy,
    Contour,
    CreateExtractor,
    CreateView,
    GetColorTransferFunction,
    GetScalarBar,
    Show,
    TrivialProducer,
)

grid = TrivialProducer(registrationName="grid")  # the mesh's name on the channel

view = CreateView("RenderView")
view.ViewSize = [800, 720]
view.UseColorPaletteForBackground = 0
view.Background = [0.87, 0.9, 0.94]

surface = Contour(registrationName="surface", Input=grid)
surface.ContourBy = ["POINTS", "V"]
surface.Isosurfaces = [0.25]
shown = Show(surface, view)
ColorBy(shown, ("POINTS", "U"))
colors = GetColorTransferFunction("U")
colors.RescaleTransferFunction(0.26, 0.59)
GetScalarBar(colors, view).Title = "U"
shown.SetScalarBarVisibility(view, True)
Show(grid, view).SetRepresentationType("Outline")

pictures = CreateExtractor("PNG", view, registrationName="pictures")
pictures.Trigger = "TimeStep"
pictures.Trigger.Frequency = 1000
pictures.Writer.FileName = "paraview-{timestep:06d}.png"
pictures.Writer.ImageResolution = [800, 720]
pictures.Writer.Format = "PNG"

options = catalyst.Options()
options.GlobalTrigger = "TimeStep"
options.EnableCatalystLive = 0


def catalyst_execute(info: object) -> None:
    camera = view.GetActiveCamera()
    camera.SetFocalPoint(0, 0, 0)
    camera.SetPosition(1.0, -1.75, 0.95)
    camera.SetViewUp(0, 0, 1)
    view.ResetCamera()
